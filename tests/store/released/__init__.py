"""A database of each released schema, as its own daemon wrote it. `test_upgrade` opens them all."""
