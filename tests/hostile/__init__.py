"""A hostile LAN: strangers attack the webhook listener, while honest terminals and the till are served.

`python -m tests.hostile` runs it (docs/evidence/hostile.md): a daemon, simulated terminals on loopback addresses, a
till, and attackers on other addresses, each as a process. Each attack is compared with a quiet time just before it.
"""
