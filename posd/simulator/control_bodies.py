"""What calls of the control API bring, and its help."""

from typing import Annotated, TypeVar

import msgspec

from posd.simulator.scenario import Certificate, Strict

#: Terminal seconds that a power cycle takes where nothing else is asked for.
POWER_CYCLE_SECONDS = 5.0

HELP = """\
The control API of posd simulate. A POST needs content-type: application/json (curl --json '{}').

GET  /scenarios                            what can happen: name, kind, summary, when, amount
GET  /terminals                            all terminals, each as below
GET  /terminals/SERIAL                     how it stands: payment, armed scenario, power, network, certificate, ...
GET  /terminals/SERIAL/ledger              what really happened
GET  /terminals/SERIAL/prints              what came out on paper
POST /terminals/SERIAL/scenario            {"name": "decline"}: what happens to the next payment alone; null: as usual
POST /terminals/SERIAL/present-card        the card is tapped; then it waits for approve or decline
POST /terminals/SERIAL/insert-card         the chip is read, the PIN entered; then it waits for approve or decline
POST /terminals/SERIAL/approve             the acquirer approves
POST /terminals/SERIAL/decline             the acquirer declines
POST /terminals/SERIAL/reject              the wait for the card, or for the PIN, has run out
POST /terminals/SERIAL/cancel              the cardholder cancels
POST /terminals/SERIAL/unplug              it loses the network; its events wait
POST /terminals/SERIAL/plug                it is back on the network; its events set out
POST /terminals/SERIAL/power-off           it loses power, and forgets the payment that runs
POST /terminals/SERIAL/power-on            it starts again
POST /terminals/SERIAL/power-cycle         {"seconds": 5}: off, and on again after so many terminal seconds
POST /terminals/SERIAL/move                it gets another address (port), and announces it
POST /terminals/SERIAL/certificate         {"which": "own" | "changed" | "expired" | "self-signed" | "wrong-name"}
POST /terminals/SERIAL/paper               somebody puts paper in
GET  /clock                                the time, and whether it is virtual
POST /clock                                {"advance": 60}: with --virtual, let so many seconds pass
"""

#: Seconds that a caller may ask for: a day and more.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class BodyFault(ValueError):
    """A body is not what the call takes; the message says why."""


class Nothing(Strict, frozen=True):
    """A body that says nothing."""


class Arm(Strict, frozen=True):
    """The scenario of the next payment; None: none is chosen so."""

    name: str | None


class PowerCycle(Strict, frozen=True):
    """Terminal seconds without power."""

    seconds: _Seconds = POWER_CYCLE_SECONDS


class Show(Strict, frozen=True):
    """The certificate that is shown."""

    which: Certificate


class Advance(Strict, frozen=True):
    """Seconds that pass."""

    advance: _Seconds


_Body = TypeVar("_Body", bound=Strict)


def nothing(raw: bytes) -> Nothing:
    """Read the body of a call that needs none. Raises BodyFault."""
    return _read(raw, Nothing)


def arm(raw: bytes) -> Arm:
    """Read which scenario is armed. Raises BodyFault."""
    return _read(raw, Arm)


def power_cycle(raw: bytes) -> PowerCycle:
    """Read how long a power cycle takes. Raises BodyFault."""
    return _read(raw, PowerCycle)


def show(raw: bytes) -> Show:
    """Read which certificate is to be shown. Raises BodyFault."""
    return _read(raw, Show)


def advance(raw: bytes) -> Advance:
    """Read how far the clock is to go. Raises BodyFault."""
    return _read(raw, Advance)


def _read(raw: bytes, kind: type[_Body]) -> _Body:
    """Read a body; none at all is an empty object."""
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BodyFault(str(error)) from error
