"""Tests that need root or a second system, and those alone: `python -m tests.system` (docs/guides/install.md)."""
