"""`posd report`: the sums of a day, for the person who closes the shop.

The daemon adds up (`GET /v1/report`, `posd.payments.report`); what is here draws it and makes no sum of money.

| module                     | does                                                                     |
| -------------------------- | ------------------------------------------------------------------------ |
| `command`                  | asks the daemon, closes shifts, and writes the report as it was asked for |
| `days`                     | days of the merchant                                                     |
| `view`                     | a report of the daemon, with its moments on the merchant's clock         |
| `words`                    | what the report says, of the catalogue of words                          |
| `table`, `exports`, `page` | a report -> a terminal, CSV and JSON, HTML (with `charts` and page.html.j2) |
"""
