"""Head office's collector: it reads the stream of all lanes into PostgreSQL.

A message is acknowledged after the commit of its content. Everything is stored under its permanent name, `(database_id,
seq)`. So repeated or reordered messages, and a rebuilt stream, give the same tables. Missing numbers show gaps.

`reading` checks a message, `tables` makes the tables, `store` writes a batch of messages, `collector` reads the stream
and combines these, and `questions` queries the tables.
"""
