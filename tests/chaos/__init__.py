"""Random runs: a shop of real processes, all that can go wrong in it, and the ledgers compared at the end.

`python -m tests.chaos --payments 500 --seed 7` makes one; docs/evidence/chaos.md says what is done and compared. The
daemon, simulated terminals and tills are processes of their own, each with a ledger; between daemon and terminals stand
proxies that break connections.

What a seed decides: ids, amounts, baskets, what the cardholders and the tills do, which terminals are unruly; kinds,
number, order, targets and lengths of the faults, and after which event each comes; and, by its parity, whether search
and abort are confirmed.

What it cannot decide: how quickly processes run. So which instruction a SIGKILL from outside hits, and
which payments the person finds open, are not the same again. Kills at named points of the daemon's code are.
"""
