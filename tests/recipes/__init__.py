"""The recipes of docs/guides/recipes run unchanged with a real daemon and simulated terminals."""
