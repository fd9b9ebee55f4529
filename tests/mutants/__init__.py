"""Mutation tests. `python -m tests.mutants` makes one mistake at a time in posd's functions, and reports mistakes that
no test finds.
"""
