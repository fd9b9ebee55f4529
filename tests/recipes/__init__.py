"""The recipes of docs/guides/recipes, run as they stand against a real daemon and simulated terminals."""
