"""posd: runs card payments on terminals of the LAN for the till, and knows whether the customer was charged."""

__version__ = "0.1.0"

#: The day on which this version was made, in UTC, as in CHANGELOG.md: a clock that is before it is wrong.
RELEASED = "2026-11-20"
