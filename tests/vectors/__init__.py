"""Test vectors: messages of a terminal or a till as bytes, each with the expected result; see README.md."""
