"""Local API of tills and operators, and webhooks of terminals, with their description and metrics."""
