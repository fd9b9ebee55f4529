"""The relay: a process of its own that publishes the feed of this lane to head office's stream.

It keeps nothing. Where it stands is what the last message of the lane's subject says, and each publish is only taken
where that message is still the last one (a fence). So a message that may have arrived or not, a second relay, and a
restart at any instant are one and the same case: read the last message, and go on from there.

`messages` has the shapes, `rules` says what follows a message, `feed` reads posd's feed, `stream` talks to the NATS
server, and `relay` puts them together.
"""
