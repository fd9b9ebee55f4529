"""The tests that need root or a second system. `python -m tests.system` runs them (docs/guides/install.md)."""
