"""posd: runs card payments on terminals of the LAN for the till, and knows whether the customer was charged."""

__version__ = "0.1.0"
