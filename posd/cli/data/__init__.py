"""Commands about the database as a whole: one file a command."""
