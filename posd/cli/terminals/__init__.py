"""Commands on terminals: list, find, pin, watch."""
