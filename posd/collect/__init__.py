"""Head office's side: reads the stream of all lanes into PostgreSQL.

A message is acknowledged after the commit of what it says, and everything is stored under the name that it has for
ever, `(database_id, seq)`. So a message that comes twice, in another order, or from a stream that was put together
again, makes no difference, and what is missing is seen by arithmetic.

`reading` says what a message is worth, `tables` makes the tables, `store` writes a batch of messages, `queue` takes
them from the stream, `collector` puts these together, and `questions` asks the tables.
"""
