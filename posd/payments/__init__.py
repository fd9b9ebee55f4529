"""A card payment, complete: its model and rules, its rows, its use cases, its calls and documents."""
