"""Strict TLS clients of other makes, as in terminals: each connects once and reports whether it would call."""
