"""SQLite: schema, migrations, the single writer with group commit, readers, queries (design 9)."""
