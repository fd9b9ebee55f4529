"""Use cases: payments, the webhook inbox, callback addresses (design 3)."""
