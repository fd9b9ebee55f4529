"""Commands on payments, and their words."""
