"""The manual, made from commands, codes and log events: man pages, two pages of docs/reference, and one of the site.

`PYTHONPATH=packaging python -m manual --man DIR --markdown FILE --codes FILE --logs FILE` writes them. `codes` writes
the table of `posd explain`, `logs` the tables of log events. `pages` reads each click command into a page; `roff` and
`markdown` write it. `configuration` makes posd.toml(5) from the commented example of the configuration. Two tables add
what click does not know: `examples`, and `notes` (exit codes, pages to read next).
"""
