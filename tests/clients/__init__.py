"""Strict TLS clients of other makers, as in terminals: each connects once and reports whether it would trust the
server.
"""
