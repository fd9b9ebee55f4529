"""How long a daemon takes to start over a full database, compared with an empty one in the same run."""
