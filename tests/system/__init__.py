"""The tests that need root or a second system. `python -m tests.system` runs these tests (docs/guides/install.md)."""
