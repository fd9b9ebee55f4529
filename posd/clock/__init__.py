"""Trust in the wall clock: evidence for and against it, and whether posd may act on it."""
