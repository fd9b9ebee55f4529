"""Crash matrix: Kills by SIGKILL at each named point of the daemon in each scenario, and the checks after each kill.

`python -m tests.crash --help` describes the command. A sample of the matrix runs with the tests.
"""
