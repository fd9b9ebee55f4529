"""Rules about the structure of posd's code. `python -m tests.house` prints its sizes."""
