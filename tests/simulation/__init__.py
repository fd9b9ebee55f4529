"""The whole posd in one process, in virtual time, from one seed."""
