"""The wall clock as a witness: what speaks for it and against it, and whether posd may act on it."""
