"""Crash matrix: SIGKILL at each named point of the daemon in each scenario, and the checks afterwards.

`python -m tests.crash --help` describes the command. A sample runs with the tests.
"""
