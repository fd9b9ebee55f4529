"""`posd report`: the totals of a day, for the operator who closes the shop.

The daemon computes the totals (`GET /v1/report`, `posd.payments.report`). This package only displays them.

| module          | does                                                                           |
| --------------- | ------------------------------------------------------------------------------ |
| `command`       | requests the report, closes shifts, and writes the report in the chosen form   |
| `view`          | the daemon's report as data, with times in the merchant's zone; CSV and JSON   |
| `words`         | texts of the report, from the catalogue of words                               |
| `table`, `page` | output of a report: on a terminal, as an HTML page with charts (page.html.j2)  |
"""
