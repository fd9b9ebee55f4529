"""Collector of head office, which stores the changes of all lanes in PostgreSQL.

A message is acknowledged after the commit of its content. Every change is stored under its permanent key,
`(database_id, seq)`. So the tables are the same after repeated or reordered messages, or with a rebuilt stream. Missing
numbers show gaps.

`reading` checks a message, `tables` creates the tables, `store` writes a batch of messages, `collector` reads the
stream and combines these modules, and `questions` queries the tables.
"""
