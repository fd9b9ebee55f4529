"""Head office's side: it reads the stream of all lanes into PostgreSQL.

A message is acknowledged after the commit of its content. Everything is stored under its permanent name, `(database_id,
seq)`. So repetition, another order, or a rebuilt stream makes no difference, and gaps are found by arithmetic.

`reading` checks a message, `tables` makes the tables, `store` writes a batch of messages, `queue` reads the stream,
`collector` combines these, and `questions` queries the tables.
"""
