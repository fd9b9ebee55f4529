"""Comparison of the description of the local API with the running daemon and with earlier releases."""
