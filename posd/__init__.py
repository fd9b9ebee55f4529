"""posd runs card payments on terminals of the LAN for a till, and records whether the customer was charged."""

__version__ = "0.1.0"

#: Release day of this version, in UTC, as in CHANGELOG.md. A clock before this day is wrong.
RELEASED = "2026-11-20"
