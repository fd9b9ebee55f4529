"""The local API of tills and operators, the webhooks of terminals, and their description and metrics."""
