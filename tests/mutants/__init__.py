"""Mistakes made in posd's functions one at a time, to see whether the tests find each: `python -m tests.mutants`."""
