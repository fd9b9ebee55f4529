"""Mistakes that are made in posd's functions one at a time; do the tests find them? `python -m tests.mutants`."""
