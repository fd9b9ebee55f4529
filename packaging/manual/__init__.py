"""The manual: man pages and docs/commands.md, made from the commands themselves, so that neither can be wrong.

`PYTHONPATH=packaging python -m manual --man DIR --markdown FILE` writes both. `pages` reads a click command into a
page, `roff` and `markdown` write one, `configuration` turns the commented example of the configuration into
posd.toml(5). What click does not know stands in two tables: `examples`, and `notes` (exit codes, what else to read).
"""
