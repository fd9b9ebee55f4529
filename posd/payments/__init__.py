"""A card payment, front to back: its model and rules, its rows, its use cases, its calls and documents."""
