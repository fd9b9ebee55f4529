"""Random runs of a shop of real processes with all kinds of faults. Each run compares the ledgers at its end.

`python -m tests.chaos --payments 500 --seed 7` makes one run. docs/evidence/chaos.md describes the command. The daemon,
simulated terminals and tills are separate processes, each with a ledger. Proxies between daemon and terminals break
connections.

A seed decides ids, amounts, baskets, actions of cardholders and tills, and faulty terminals. The seed also decides
kinds, number, order, targets and durations of the faults, and the events after which the faults begin. The parity of
the seed decides whether search and abort are confirmed.

A seed cannot decide how fast processes run. Two runs of a seed therefore differ in the instruction at which a SIGKILL
hits, and in the payments that the person finds open. The runs do not differ in kills at named points of the daemon's
code.
"""
