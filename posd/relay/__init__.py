"""Relay: a separate process that publishes the feed of this lane to head office's stream.

The relay stores nothing. The last message on the lane's subject contains the relay's position. The server accepts a
publish only if that message is still the last message (a fence). So a lost reply, a second relay and a restart at any
moment are handled in the same way: the relay reads the last message, and continues after it.

`messages` has the types and computes the next message, `feed` reads posd's feed, `stream` connects to the NATS server,
and `relay` combines them.
"""
