"""Commands on print jobs, and their words."""
