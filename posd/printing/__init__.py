"""A print job, front to back: its model and rules, its rows, its use cases, its calls and documents."""
