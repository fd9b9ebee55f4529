"""`posd report`: what a day came to, for the person who closes the shop.

| module                   | does                                                                                   |
| ------------------------ | -------------------------------------------------------------------------------------- |
| `command`                | reads the local API, and writes the report as it was asked for                           |
| `facts`                  | days of the merchant, exact amounts; a document of the local API -> what a report needs |
| `sums`                   | facts -> where each payment stands, the totals, and the numbers of the charts           |
| `closed`, `shift`        | closed shifts; what a shift counts: each payment once, later changes as corrections      |
| `closing`                | reads shifts over the local API, and closes one                                          |
| `expect`                 | which payments explain that the terminal's own total is another one                      |
| `words`                  | what the report says in words                                                          |
| `table`, `exports`, `page` | a report -> a terminal, CSV and JSON, HTML (with `charts` and page.html.j2)            |

All but `command`, `closing` and `table` are pure.
"""
