"""`posd doctor`: check everything that payments depend on, change nothing, and say what to do."""
