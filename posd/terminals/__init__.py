"""Outgoing calls: trust in terminals, authentication, the HTTP client, discovery, the fleet.

Source: terminal API, Calls to a terminal.
"""
