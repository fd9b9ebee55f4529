"""The benchmark: `python -m tests.bench`. Benchmark of real processes over real TLS and Unix sockets. Figures are
compared within one run.
"""
