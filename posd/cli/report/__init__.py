"""`posd report`: what a day came to, for the person who closes the shop.

| module                   | does                                                                                   |
| ------------------------ | -------------------------------------------------------------------------------------- |
| `command`                | reads the local API, and writes the report as it was asked for                           |
| `facts`                  | days of the merchant, exact amounts; a document of the local API -> what a report needs |
| `sums`                   | facts -> where each payment stands, the totals, and the numbers of the charts           |
| `words`                  | what the report says in words                                                          |
| `table`, `exports`, `page` | a report -> a terminal, CSV and JSON, HTML (with `charts` and page.html.j2)            |

All but `command` and `table` are pure.
"""
