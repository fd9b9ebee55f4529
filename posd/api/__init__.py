"""The doors: the local API of tills and operators, the webhooks of terminals; what describes and measures them."""
