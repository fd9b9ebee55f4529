"""Commands on terminals: list, add, pin, commission, identity."""
