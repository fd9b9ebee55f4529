"""Named points at which a test can have the process killed, as by a power cut. Inert unless POSD_CRASH names one.

`POSD_CRASH=event.committed` kills at the first time that the point is reached, `POSD_CRASH=event.committed:3` at the
third. There is a point before and after each commit, each send and each reply.
"""

import os
import signal
from collections import Counter

POINTS = frozenset(
    {
        # a start
        "start.before_intent",
        "start.intended",
        "start.before_send",
        "start.written",
        "start.replied",
        "start.concluded",
        # an event
        "event.before_commit",
        "event.committed",
        "event.answered",
        # an abort
        "abort.before_fence",
        "abort.fenced",
        "abort.replied",
        "abort.settled",
        # a search
        "search.before_send",
        "search.replied",
        "search.recorded",
        # a silence or a proof that is noted
        "reconcile.before_commit",
        "reconcile.committed",
        # a person's word
        "operator.before_commit",
        "operator.committed",
        # a print job: its creation, its webhook, a poll of it, and what an earlier daemon left of them
        "print.before_intent",
        "print.intended",
        "print.before_send",
        "print.written",
        "print.replied",
        "print.concluded",
        "print_event.before_commit",
        "print_event.committed",
        "print_event.answered",
        "print_poll.before_send",
        "print_poll.replied",
        "print_poll.recorded",
        "print_recovery.before_commit",
        "print_recovery.committed",
        # an answer to a till: of a start, of a wait, of anything
        "till.before_answer",
        "till.answered",
        # a daemon that takes up what an earlier one left
        "recovery.before_commit",
        "recovery.committed",
        # a backup, and a restore up to the new file and while it is put in place
        "backup.copied",
        "backup.checked",
        "backup.renamed",
        "backup.rotated",
        "restore.built",
        "restore.keys_written",
        "replace.committed",
        "replace.old_aside",
        "replace.in_place",
        # retention: when the payments are gone, when the feed's lines are, and while the space is given back
        "prune.payments_removed",
        "prune.feed_removed",
        "prune.space_returned",
        # around each COMMIT, whatever is in it
        "writer.before_commit",
        "writer.committed",
    }
)

_NAME, _, _TIMES = os.environ.get("POSD_CRASH", "").partition(":")
_reached: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """End the process here, at once and without a goodbye, where the test asked for it."""
    if _NAME and name == _NAME:
        _reached[name] += 1
        if _reached[name] == int(_TIMES or 1):
            os.kill(os.getpid(), signal.SIGKILL)
