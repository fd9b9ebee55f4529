"""When a terminal is looked at by itself, from what is known of it: no I/O.

mDNS tells that a terminal has come, and often that it goes, but not that its plug was pulled: its records live for an
hour and more. So posd looks by itself, and only where there is a reason to: what is announced anew, somebody who asks
for the terminals, a payment that is open, a terminal that has just been lost, and otherwise rarely.
"""

import msgspec

#: The least pause between two looks at one terminal, in seconds: an announcer that flaps causes no storm.
SPACING_SECONDS = 2.0
#: While a payment is open there and nothing was heard of it, in seconds.
OPEN_SECONDS = 30.0
#: A terminal that was lost is looked for after this, each time twice as long later, up to the second. Seconds.
LOST_SECONDS = 5.0
MAX_LOST_SECONDS = 60.0
#: So many times; then it is looked for as rarely as all the others (unless a payment is open): some 10 minutes.
LOST_LOOKS = 12


class Pulse(msgspec.Struct, frozen=True):
    """What is known of one terminal: when it was last looked at or heard (monotonic seconds), the looks since that
    failed, and whether something wants it looked at.
    """

    last: float
    failures: int = 0
    wanted: bool = False


def want(pulse: Pulse) -> Pulse:
    """Note that it is to be looked at as soon as may be."""
    return msgspec.structs.replace(pulse, wanted=True)


def heard(pulse: Pulse, now: float) -> Pulse:
    """Note that it said something by itself."""
    return msgspec.structs.replace(pulse, last=now)


def begun(pulse: Pulse, now: float) -> Pulse:
    """Note that it is being looked at: what wanted it has it."""
    return msgspec.structs.replace(pulse, last=now, wanted=False)


def looked(pulse: Pulse, now: float, *, reached: bool) -> Pulse:
    """Note what came of a look at it, or of a call."""
    return msgspec.structs.replace(pulse, last=now, failures=0 if reached else pulse.failures + 1)


def due(pulse: Pulse, *, busy: bool, every: float) -> float | None:
    """Return from when on it is to be looked at, None where nothing asks for it.

    `busy`: a payment is open there. `every`: the pause without any reason, in seconds, 0 for never.
    """
    if pulse.wanted:
        return pulse.last + SPACING_SECONDS
    pauses = [max(every, SPACING_SECONDS)] if every else []
    if busy:
        pauses.append(OPEN_SECONDS)
    if pulse.failures and (busy or pulse.failures <= LOST_LOOKS):
        pauses.append(min(LOST_SECONDS * 2.0 ** min(pulse.failures - 1, 10), MAX_LOST_SECONDS))
    return pulse.last + min(pauses) if pauses else None
