"""A hostile LAN. Strangers attack the webhook listener while posd serves honest terminals and the till.

`python -m tests.hostile` makes the measurements (docs/evidence/hostile.md). The daemon, the simulated terminals on
loopback addresses, the till, and the attackers on other addresses are processes. Each attack is compared with a quiet
time just before it.
"""
