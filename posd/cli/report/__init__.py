"""`posd report`: what a day came to, for who closes the shop.

| module       | does                                                                  |
| ------------ | --------------------------------------------------------------------- |
| `days`       | days of the merchant, of 23 to 25 hours                               |
| `facts`      | a document of the local API -> what a report needs of it              |
| `sections`   | facts -> where a payment stands in the report, and with which amount  |
| `sums`       | payments -> totals; every one exact, every one the sum of its rows    |
| `figures`    | payments -> what the charts show                                      |
| `reading`    | the local API -> facts (the only one that talks to anybody)           |
| `table`, `as_csv`, `as_json`, `html` | a report -> what people and programs read     |

All but `reading`, `table` and `command` are pure.
"""
