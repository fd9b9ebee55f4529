"""The log: JSON lines with allow-listed fields; the table of its events; what repeats is counted."""
