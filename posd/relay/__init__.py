"""The relay: a separate process that publishes the feed of this lane to head office's stream.

It stores nothing. The last message of the lane's subject holds its position. Each publish is accepted only if that
message is still the last one (a fence). So a message of unknown fate, a second relay, and a restart at any moment are
the same case: read the last message, and continue from there.

`messages` has the shapes, `rules` computes the next message, `feed` reads posd's feed, `stream` connects to the NATS
server, and `relay` combines them.
"""
