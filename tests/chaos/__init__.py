"""Random runs: a shop of real processes, all that can go wrong in it, and the ledgers compared at the end.

`python -m tests.chaos --payments 500 --seed 7` makes one run; docs/evidence/chaos.md describes it. The daemon,
simulated terminals and tills are separate processes, each with a ledger. Proxies between daemon and terminals break
connections.

A seed decides: ids, amounts, baskets, actions of cardholders and tills, unruly terminals; kinds, number, order, targets
and lengths of the faults, and the event after which each begins; and by its parity, whether search and abort are
confirmed.

What it cannot decide: how quickly processes run. So which instruction a SIGKILL from outside hits, and
which payments the person finds open, are not the same again. Kills at named points of the daemon's code are.
"""
