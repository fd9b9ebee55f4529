"""Run the recipes of docs/guides/recipes unchanged with a real daemon and simulated terminals."""
