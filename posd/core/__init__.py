"""The pure core: no I/O, no await, no clock, no randomness, no logging. `now` and ids come in as arguments."""
