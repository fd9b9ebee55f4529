"""Test vectors: what a terminal and a till send, as bytes, and what is expected of it; see README.md."""
