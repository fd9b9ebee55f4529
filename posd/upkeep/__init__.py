"""Maintenance of the whole database: verify, restore, merge, salvage, retention."""
