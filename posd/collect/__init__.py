"""Collector of head office. The collector reads the stream of all lanes into PostgreSQL.

A message is acknowledged after the commit of its content. Every change is stored under its permanent key,
`(database_id, seq)`. So repeated or reordered messages, and a rebuilt stream, give the same tables. Missing numbers
show gaps.

`reading` checks a message, `tables` creates the tables, `store` writes a batch of messages, `collector` reads the
stream and combines these modules, and `questions` queries the tables.
"""
