"""`posd report`: the totals of a day, for the person who closes the shop.

The daemon computes them (`GET /v1/report`, `posd.payments.report`); this package only displays them.

| module          | does                                                                           |
| --------------- | ------------------------------------------------------------------------------ |
| `command`       | asks the daemon, closes shifts, and writes the report as it was asked for      |
| `view`          | a report of the daemon as data: days and moments of the merchant, CSV and JSON |
| `words`         | texts of the report, from the catalogue of words                               |
| `table`, `page` | a report -> a terminal, HTML with charts (page.html.j2)                        |
"""
