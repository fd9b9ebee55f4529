"""The relay: a separate process that publishes the feed of this lane to head office's stream.

The relay stores nothing. The last message of the lane's subject holds its position. The server accepts a publish only
if that message is still the last one (a fence). So a lost reply, a second relay and a restart at any moment are handled
in the same way: read the last message, and continue after it.

`messages` has the shapes, `rules` computes the next message, `feed` reads posd's feed, `stream` connects to the NATS
server, and `relay` combines them.
"""
