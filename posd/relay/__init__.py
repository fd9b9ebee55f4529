"""Relay: a separate process that publishes the feed of this lane to head office's stream.

The relay stores nothing. The last message on the lane's subject contains the relay's position in the feed. The server
accepts a publish only if that message is still the last one (a fence). So the relay handles a lost reply, a second
relay and a restart in the same way: it reads the last message, and continues after it.

`messages` has the types and computes the next message, `stream` connects to the NATS server, `relay` reads posd's feed
and publishes it, and `process` runs the process.
"""
