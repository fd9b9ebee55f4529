"""Time of the next poll of a print job, in seconds of the monotonic clock.

A print webhook arrives once or never. So each open job is polled until its end is known: first after
`poll_first_seconds`, then after doubled pauses up to `poll_max_seconds`. After `stuck_seconds` without an end, the job
is stuck: it is polled less often, and a job that the terminal accepted gets an attention. These seconds begin when the
terminal accepts the job, or for a job in doubt when posd begins to poll.

| the job is             | first poll                            | attention `print_stuck`            |
| ---------------------- | ------------------------------------- | ---------------------------------- |
| starting               | none, because a reply is awaited      |                                    |
| in doubt               | `poll_first_seconds` after the change | none, because it has `in_doubt`    |
| active                 | `poll_first_seconds` after the change | `stuck_seconds` after the change   |
| from an earlier daemon | at once                               | after the rest of `stuck_seconds`  |

A terminal is polled for one job at a time. While it is unreachable, there is only one poll for all of its jobs, after a
pause (`not_reached`).

Source: terminal API, Printing.
"""

import msgspec

from posd.config.schema import PrintConfig

#: Largest fraction by which a pause is lengthened at random. The jitter spreads the polls of jobs.
JITTER = 0.25
#: Factor by which the longest pause is multiplied for a stuck job.
SLOW = 4.0
#: Minimum pause between two polls of one job, in seconds, if a device on the LAN causes the polls.
CAUSED_PAUSE_SECONDS = 2.0
NEVER = float("inf")
#: Maximum number of doublings of the first pause. It is enough to reach the longest pause from any first pause.
_MAX_DOUBLINGS = 24


class PollPlan(msgspec.Struct, frozen=True):
    """Data for the plan of the polls of one open job. Times are seconds of the monotonic clock.

    `poll_at`: time of the next poll, `NEVER` while a poll runs. `stuck_at`: time from which the job is stuck.
    `accepted`: whether the terminal certainly has the job. `told`: whether the job was reported as stuck. `asked_at`:
    time of the last poll.
    """

    poll_at: float
    stuck_at: float
    accepted: bool
    told: bool = False
    tries: int = 0
    asked_at: float = float("-inf")


def begin(accepted: bool, limits: PrintConfig, now: float) -> PollPlan:
    """Return the plan for a job that the terminal has just accepted (`accepted`), or that was just put in doubt."""
    return PollPlan(now + limits.poll_first_seconds, now + limits.stuck_seconds, accepted)


def adopt(accepted: bool, age: float, told: bool, limits: PrintConfig, now: float) -> PollPlan:
    """Return the plan for a job that an earlier daemon left open. The first poll is due at once.

    `age`: seconds by the wall clock since the terminal accepted the job, or since its start.
    """
    # After the clock was set back, the age is unknown.
    left = limits.stuck_seconds - min(max(age, 0.0), limits.stuck_seconds)
    return PollPlan(now, now + left, accepted, told)


def accepted(plan: PollPlan, limits: PrintConfig, now: float) -> PollPlan:
    """Mark a doubtful job as accepted."""
    if plan.accepted:
        return plan
    return msgspec.structs.replace(begin(True, limits, now), asked_at=plan.asked_at)


def soon(plan: PollPlan, now: float) -> PollPlan:
    """Plan a poll because a webhook was unusable: now, but at least `CAUSED_PAUSE_SECONDS` after the last poll."""
    return msgspec.structs.replace(plan, poll_at=min(plan.poll_at, max(now, plan.asked_at + CAUSED_PAUSE_SECONDS)))


def asking(plan: PollPlan, now: float) -> PollPlan:
    """Record that a poll runs. A call of `soon` during the poll plans the next one."""
    return msgspec.structs.replace(plan, poll_at=NEVER, asked_at=now)


def asked_in_vain(plan: PollPlan, due: float) -> PollPlan:
    """Record that a poll failed. The poll stays due, but the pause of the terminal delays it."""
    return msgspec.structs.replace(plan, poll_at=due)


def answered(plan: PollPlan, limits: PrintConfig, now: float, jitter: float) -> PollPlan:
    """Plan the next poll after the result of a poll. `jitter`: random number from 0 to 1."""
    pause = min(limits.poll_max_seconds, limits.poll_first_seconds * 2.0 ** min(plan.tries + 1, _MAX_DOUBLINGS))
    if now >= plan.stuck_at:
        pause = limits.poll_max_seconds * SLOW
    at = now + pause * (1 + JITTER * jitter)
    return msgspec.structs.replace(plan, poll_at=at, tries=plan.tries + 1, asked_at=now)


def stuck_due(plan: PollPlan) -> float | None:
    """Return the time at which the job has to be reported as stuck, or None."""
    return plan.stuck_at if plan.accepted and not plan.told else None


def told(plan: PollPlan) -> PollPlan:
    """Record that the job was reported as stuck."""
    return msgspec.structs.replace(plan, told=True)


def tell_later(plan: PollPlan, limits: PrintConfig, now: float) -> PollPlan:
    """Plan to report the job as stuck again, because the report could not be recorded."""
    return msgspec.structs.replace(plan, told=False, stuck_at=now + limits.poll_first_seconds)


def not_reached(failures: int, limits: PrintConfig, now: float, jitter: float) -> float:
    """Return the end of the pause for an unreachable terminal.

    `failures`: number of failed polls before this one. Each doubles the pause, up to `poll_max_seconds`.
    """
    pause = min(limits.poll_max_seconds, limits.poll_first_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS))
    return now + pause * (1 + JITTER * jitter)
