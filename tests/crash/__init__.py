"""Crash matrix: SIGKILL at each named point of the daemon, in each scenario, and the checks afterwards.

`python -m tests.crash --help`; a sample of it runs with the tests.
"""
