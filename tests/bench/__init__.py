"""The benchmark: `python -m tests.bench`. Real processes over real TLS and Unix sockets, compared within one run."""
