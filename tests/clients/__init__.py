"""Strict TLS clients of other makes, as a terminal may have one: each connects once and says whether it would call."""
