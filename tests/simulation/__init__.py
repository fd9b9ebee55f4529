"""posd as a whole in one process, in virtual time, from one seed."""
