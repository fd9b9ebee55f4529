"""Test vectors. A vector has a message of a terminal or a till as bytes, and the expected result (see README.md)."""
