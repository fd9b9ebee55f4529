"""Base of all parts, independent of the others: JSON, money, times, ids, locks, crash points, meters."""
