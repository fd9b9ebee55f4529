"""The log: JSON lines with allow-listed fields, the table of its events, and counts of repeated lines."""
