"""The manual, made from the commands and codes: man pages, docs/reference/codes.md, and commands.md of the site.

`PYTHONPATH=packaging python -m manual --man DIR --markdown FILE --codes FILE` writes them. `codes` writes the table of
`posd explain`. `pages` reads a click command into a
page, `roff` and `markdown` write one, `configuration` turns the commented example of the configuration into
posd.toml(5). What click does not know stands in two tables: `examples`, and `notes` (exit codes, what else to read).
"""
