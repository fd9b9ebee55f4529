"""A database of each released schema, written by the daemon of that release. `test_upgrade` opens all these
databases."""
