"""Rules about the structure of posd's code, and two commands: see `python -m tests.house`."""
