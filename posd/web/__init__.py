"""The two ASGI apps (webhooks on the LAN, the local API on Unix sockets) and the server under them."""
