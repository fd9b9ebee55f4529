"""A hostile LAN: what strangers can do to the webhook listener, and what honest terminals and the till get meanwhile.

`python -m tests.hostile` runs it (docs/evidence/hostile.md): a daemon, simulated terminals on addresses of loopback,
a till, and attackers on other addresses, each a process of its own. Each attack is measured against a quiet time just
before it.
"""
