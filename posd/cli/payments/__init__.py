"""Commands on payments, and their texts."""
