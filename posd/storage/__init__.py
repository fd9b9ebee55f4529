"""SQLite without a domain: opening, migrations, the single writer with group commit, backup, files."""
