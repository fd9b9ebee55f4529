"""Log in JSON lines with allow-listed fields, and counts of repeated lines."""
