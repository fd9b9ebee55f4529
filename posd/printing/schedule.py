"""Time of the next poll of a print job (terminal API, Printing: polling is required): pure, by the monotonic clock, in
seconds.

A webhook of this channel comes once or never. So each open job is polled: first after `poll_first_seconds`, then after
doubled pauses up to `poll_max_seconds`, until its end is known. After `stuck_seconds` since the terminal accepted it
(in doubt: since posd began to poll) it is polled more slowly, and an attention reports a job that the terminal has.

| the job is       | first question                          | stuck is told                  |
| ---------------- | --------------------------------------- | ------------------------------ |
| starting         | none: its reply comes, or its doubt     |                                |
| in doubt         | `poll_first_seconds` after it became so | never: that it is in doubt is  |
| active           | `poll_first_seconds` after it became so | `stuck_seconds` after that     |
| taken up (start) | at once                                 | what is left of `stuck_seconds` |

A terminal is polled for one job at a time. While it is unreachable none of its jobs is polled: one poll after a pause
of its own (`PollPause`) serves all of them.

Source: terminal API, Printing.
"""

import msgspec

from posd.config.schema import PrintConfig

#: Part by which a pause is lengthened at random, so that jobs are not polled in step.
JITTER = 0.25
#: Factor on the longest pause for a stuck job.
SLOW = 4.0
#: Least pause between two polls of one job that a device on the LAN causes, in seconds.
CAUSED_PAUSE_SECONDS = 2.0
NEVER = float("inf")
#: Doublings after which the longest pause is reached from any first one.
_MAX_DOUBLINGS = 24


class PollPlan(msgspec.Struct, frozen=True):
    """Data about one open job; times are seconds of the monotonic clock.

    `poll_at`: its next poll, `NEVER` while one runs. `stuck_at`: when it has been open for too long. `accepted`:
    whether the terminal is known to have it. `told`: whether it was reported as stuck. `asked_at`: its last poll.
    """

    poll_at: float
    stuck_at: float
    accepted: bool
    told: bool = False
    tries: int = 0
    asked_at: float = float("-inf")


class PollPause(msgspec.Struct, frozen=True):
    """Pause for an unreachable terminal, in which none of its jobs is polled."""

    until: float
    tries: int = 0


def begin(accepted: bool, limits: PrintConfig, now: float) -> PollPlan:
    """Plan for a job that the terminal has just accepted, or that has just become doubtful."""
    return PollPlan(now + limits.poll_first_seconds, now + limits.stuck_seconds, accepted)


def adopt(accepted: bool, age: float, told: bool, limits: PrintConfig, now: float) -> PollPlan:
    """Plan for a job from an earlier daemon: it is polled at once. `age` in seconds, by the wall clock."""
    left = limits.stuck_seconds - min(max(age, 0.0), limits.stuck_seconds)  # a clock that was set back gives no age
    return PollPlan(now, now + left, accepted, told)


def accepted(plan: PollPlan, limits: PrintConfig, now: float) -> PollPlan:
    """Mark a doubtful job as accepted."""
    if plan.accepted:
        return plan
    return msgspec.structs.replace(begin(True, limits, now), asked_at=plan.asked_at)


def soon(plan: PollPlan, now: float) -> PollPlan:
    """Poll it now, because a callback of it was unusable. The pause between such polls is bounded."""
    return msgspec.structs.replace(plan, poll_at=min(plan.poll_at, max(now, plan.asked_at + CAUSED_PAUSE_SECONDS)))


def asking(plan: PollPlan, now: float) -> PollPlan:
    """Record that a poll runs; requests of `soon` meanwhile are for the next one."""
    return msgspec.structs.replace(plan, poll_at=NEVER, asked_at=now)


def asked_in_vain(plan: PollPlan, due: float) -> PollPlan:
    """Record that the poll failed: it stays due, and the terminal's pause delays it."""
    return msgspec.structs.replace(plan, poll_at=due)


def answered(plan: PollPlan, limits: PrintConfig, now: float, jitter: float) -> PollPlan:
    """Plan the next poll after one. `jitter` is 0 to 1."""
    pause = min(limits.poll_max_seconds, limits.poll_first_seconds * 2.0 ** min(plan.tries + 1, _MAX_DOUBLINGS))
    if now >= plan.stuck_at:
        pause = limits.poll_max_seconds * SLOW
    at = now + pause * (1 + JITTER * jitter)
    return msgspec.structs.replace(plan, poll_at=at, tries=plan.tries + 1, asked_at=now)


def stuck_due(plan: PollPlan) -> float | None:
    """Return when a stuck job is reported to an operator, or None."""
    return plan.stuck_at if plan.accepted and not plan.told else None


def told(plan: PollPlan) -> PollPlan:
    """Record that it was reported as stuck."""
    return msgspec.structs.replace(plan, told=True)


def tell_later(plan: PollPlan, limits: PrintConfig, now: float) -> PollPlan:
    """Plan to report it as stuck again, because that could not be recorded."""
    return msgspec.structs.replace(plan, told=False, stuck_at=now + limits.poll_first_seconds)


def not_reached(away: PollPause | None, limits: PrintConfig, now: float, jitter: float) -> PollPause:
    """Record that a terminal is unreachable (again): its pause doubles, within the bounds of a job's."""
    tries = 0 if away is None else away.tries + 1
    pause = min(limits.poll_max_seconds, limits.poll_first_seconds * 2.0 ** min(tries, _MAX_DOUBLINGS))
    return PollPause(now + pause * (1 + JITTER * jitter), tries)
