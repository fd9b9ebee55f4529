"""Outgoing: trust in terminals, authentication, the HTTP client, discovery, the fleet (design 4, 7 and 8)."""
