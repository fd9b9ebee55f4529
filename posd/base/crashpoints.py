"""Named points at which a test can kill the process, as a power cut would. A point has an effect only if POSD_CRASH
names it.

`POSD_CRASH=event.committed` kills the process the first time that it reaches the point, and
`POSD_CRASH=event.committed:3` the third time. There is a point before and after each commit, each send and each reply.
"""

import os
import signal
from collections import Counter

# Each line has the points of one action. Lines on payments: start, event, abort, search, recorded silence or proof,
# operator's decision. Print jobs: start, webhook, poll, recovery. Others: replies to a till, recovery of payments.
# Storage: backup, restore up to the new file, replacement of a file, retention, each COMMIT.
_POINTS = """
start.before_intent start.intended start.before_send start.written start.replied start.concluded
event.before_commit event.committed event.answered
abort.before_fence abort.fenced abort.replied abort.settled
search.before_send search.replied search.recorded
reconcile.before_commit reconcile.committed
operator.before_commit operator.committed
print.before_intent print.intended print.before_send print.written print.replied print.concluded
print_event.before_commit print_event.committed print_event.answered
print_poll.before_send print_poll.replied print_poll.recorded
print_recovery.before_commit print_recovery.committed
till.before_answer till.answered
recovery.before_commit recovery.committed
backup.copied backup.checked backup.renamed backup.rotated
restore.built restore.keys_written
replace.committed replace.old_aside replace.in_place
prune.payments_removed prune.feed_removed prune.space_returned
writer.before_commit writer.committed
"""
POINTS = frozenset(_POINTS.split())

_NAME, _, _TIMES = os.environ.get("POSD_CRASH", "").partition(":")
_reached: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Kill the process here, if the test requested it."""
    if _NAME and name == _NAME:
        _reached[name] += 1
        if _reached[name] == int(_TIMES or 1):
            os.kill(os.getpid(), signal.SIGKILL)
