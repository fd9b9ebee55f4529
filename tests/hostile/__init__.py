"""A hostile LAN: attacks of strangers on the webhook listener, and the service for honest terminals and the till
meanwhile.

`python -m tests.hostile` runs it (docs/evidence/hostile.md): a daemon, simulated terminals on loopback addresses, a
till, and attackers on other addresses, each as a process. Each attack is compared with a quiet time just before it.
"""
