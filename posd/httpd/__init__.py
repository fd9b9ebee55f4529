"""HTTP/1.1 listener for hostile peers, between Hypercorn's sockets and an ASGI app."""
