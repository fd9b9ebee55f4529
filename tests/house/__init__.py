"""The structure of posd's code, measured: see `python -m tests.house`."""
