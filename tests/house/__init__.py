"""Rules about the structure of posd's code, and three commands: see `python -m tests.house`."""
