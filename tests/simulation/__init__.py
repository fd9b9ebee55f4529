"""Simulation of the whole daemon in one process and in virtual time. One seed gives one run.

To keep runs repeatable, take random numbers from `world.random(...)`, or from a separate `Random` for each sale and
fault. Do not iterate over a set if the order matters. Do not read the real clock. Do not sleep. Code of the simulated
world must not run in the context of the daemon (`OUTSIDE` in `loop.py`).

What to add, and where:

- a fault: a row in `KINDS` (`trouble.py`) with its rate, its effects, and a function that starts and ends the fault
- a habit of a terminal: a value in `habits.py`, and its case in `terminal.py` or `sending.py`; set `truth.lied` if the
  terminal lies
- a habit of a till: a value in `MANNERS` (`plan.py`), and its case in `till.py`
- a check: a method of `Checks`; its message names the id or the sale
- a deliberate fault: a table in `breaks.toml`
- a situation to count: `world.seen(kind, value)`, and a row in `KNOWN` (`story.py`) if all values are known
- a line in the story: `world.note(who, what, …)`
"""
