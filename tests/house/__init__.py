"""Measurements of the structure of posd's code: see `python -m tests.house`."""
