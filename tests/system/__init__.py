"""The tests that need root or a second system, and only those: `python -m tests.system` (docs/guides/install.md)."""
