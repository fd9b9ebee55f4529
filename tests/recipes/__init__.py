"""The recipes of docs/recipes, run as they stand against a real daemon and simulated terminals."""
