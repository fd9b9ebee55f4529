"""The wall clock as a witness: evidence for and against it, and whether posd may act on it."""
