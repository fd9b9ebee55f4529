"""`posd report`: the sums of a day, for the person who closes the shop.

The daemon adds up (`GET /v1/report`, `posd.payments.report`); what is here draws it and makes no sum of money.

| module          | does                                                                           |
| --------------- | ------------------------------------------------------------------------------ |
| `command`       | asks the daemon, closes shifts, and writes the report as it was asked for      |
| `view`          | a report of the daemon as data: days and moments of the merchant, CSV and JSON |
| `words`         | what the report says, of the catalogue of words                                |
| `table`, `page` | a report -> a terminal, HTML with charts (page.html.j2)                        |
"""
