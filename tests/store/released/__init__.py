"""A database of each schema that was ever in use, as its own daemon left it; `test_upgrade` opens them all."""
