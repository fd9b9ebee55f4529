"""Common base of all packages, without imports from them: JSON, money, times, ids, locks, crash points, metrics."""
