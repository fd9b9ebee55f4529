"""Random runs of a shop of real processes with all kinds of faults. At the end the ledgers are compared.

`python -m tests.chaos --payments 500 --seed 7` makes one run; docs/evidence/chaos.md describes it. The daemon,
simulated terminals and tills are separate processes, each with a ledger. Proxies between daemon and terminals break
connections.

A seed decides ids, amounts, baskets, actions of cardholders and tills, and faulty terminals. It decides kinds, number,
order, targets and durations of the faults, and the event after which each begins. By its parity it decides whether
search and abort are confirmed.

A seed cannot decide how fast processes run. So the instruction at which a SIGKILL from outside hits, and the payments
that the person finds open, differ between runs. Kills at named points of the daemon's code do not.
"""
