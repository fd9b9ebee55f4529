"""Strict TLS clients of other makers, like the clients in terminals. Each client connects once and reports whether it
trusts the server.
"""
