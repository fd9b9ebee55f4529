"""Which address of a terminal may be used: an address is not an identity. No I/O.

Anything on the network can announce a serial, and answer. So a terminal is followed to a new address only with proof:
the pinned certificate, or one of the named CA that bears its serial. Without either, a new claim is followed only while
nothing is open on the terminal, the address that was used last has not answered for some time, and one device alone
claims the serial.
All else is a conflict: nothing is sent, and a person decides. An address in the configuration always wins.
"""

from enum import Enum, StrEnum, auto
from typing import Literal

import msgspec

#: How long the address that was trusted last has to be silent until another one may take its place, in seconds. A call
#: waits for it where that is all that is missing.
LOST_SECONDS = 5.0


class Proof(StrEnum):
    """What shows that a device is the terminal: its pinned certificate, its serial in one of the named CA, nothing."""

    PINNED = "pinned"
    CA = "ca"
    NONE = "none"


class Old(Enum):
    """What is known of the address that was trusted last."""

    NEVER = auto()  # no payment ran anywhere yet, and no person has decided
    ANSWERS = auto()
    UNKNOWN = auto()  # not looked at since it was announced, or since the start
    SILENT = auto()  # it does not answer, or what is there is not the terminal: it may be back in a moment
    LOST = auto()  # the same for `LOST_SECONDS`: one lost packet must not make room for another device


class Claimants(Enum):
    """How many devices answer under the serial elsewhere, none of which can prove who it is."""

    NONE = 0
    ONE = 1
    SEVERAL = 2


class Use(Enum):
    """The address to use."""

    CONFIGURED = auto()
    NEWEST = auto()  # the best of those that are announced: it proves itself or is sent nothing
    PROVEN = auto()  # the best of those whose certificate bears the serial
    TRUSTED = auto()  # the one that was trusted last
    NEW = auto()  # the only claimant: the terminal has moved


class Conflict(StrEnum):
    """Why no address may be used."""

    RIVALS = "rivals"  # several devices answer under the serial
    MOVED = "moved"  # the address that was trusted is silent, and what answers elsewhere must not be believed
    SERIAL = "serial"  # the device at the address says that it is another terminal


class Situation(msgspec.Struct, frozen=True):
    """All that decides.

    `proven`: a device answers whose certificate bears the serial. `proved`: the one that was trusted last had shown
    such a certificate. `decided`: a person had said that it is the terminal; `contested`: and that others are not.
    `open`: a payment of the terminal is open.
    """

    configured: bool
    pinned: bool
    proven: bool
    old: Old
    claimants: Claimants
    proved: bool = False
    decided: bool = False
    contested: bool = False
    open: bool = False


def judge(seen: Situation) -> Use | Conflict:
    """Return the address to use, or why none may be used."""
    if seen.configured:
        return Use.CONFIGURED
    if seen.pinned:
        return Use.NEWEST
    if seen.proven:
        return Use.PROVEN
    if seen.old is Old.NEVER:
        return Conflict.RIVALS if seen.claimants is Claimants.SEVERAL else Use.NEWEST
    if seen.claimants is Claimants.NONE or seen.old is Old.UNKNOWN:
        return Use.TRUSTED
    if seen.old is Old.ANSWERS:  # whom a person has turned down cannot stop the shop
        return Use.TRUSTED if seen.decided else Conflict.RIVALS
    if seen.claimants is Claimants.SEVERAL:
        return Conflict.RIVALS
    if seen.open or seen.proved or seen.contested:
        return Conflict.MOVED
    return Use.NEW if seen.old is Old.LOST else Use.TRUSTED


class Trusted(msgspec.Struct, frozen=True):
    """Where a terminal was trusted last: a payment went there, or a person decided. It is kept over restarts.

    `at` is ISO 8601. `turned_down`: what a person decided against: the addresses of others, or the serial of another
    terminal that was announced at this address.
    `other_serial`: what the device there said it is since then, where that is another terminal.
    """

    base_url: str
    proof: Proof
    at: str
    operator: str | None = None
    note: str | None = None
    uid: int | None = None
    turned_down: tuple[str, ...] = ()
    other_serial: str | None = None

    @property
    def decided(self) -> bool:
        """Whether a person said that it is the terminal."""
        return self.operator is not None


class Other(msgspec.Struct, frozen=True):
    """Another terminal than the one that is meant, at its address; `announced`: it is announced there, by mDNS."""

    serial: str
    announced: bool


#: Who says that an address is the terminal's; `trusted`: it was used last, and is not announced now.
ClaimSource = Literal["config", "mdns", "trusted"]


class Claim(msgspec.Struct, frozen=True):
    """One address that is said to be the terminal's; `since` is when that was said first, ISO 8601."""

    base_url: str
    source: ClaimSource
    since: str | None
    proof: Proof


class Dispute(msgspec.Struct, frozen=True):
    """A conflict that is open: since when, between which claims, and in words what was seen and what to do."""

    kind: Conflict
    since: str
    claims: tuple[Claim, ...]
    what: str
    todo: str

    @property
    def detail(self) -> str:
        """Both, and what it means."""
        if self.kind is Conflict.SERIAL:  # what was sent to it is asked for there
            return f"{self.what}. No payment is sent to it. {self.todo}"
        return f"{self.what}. Nothing is sent to it. {self.todo}"


def todo(serial: str, other_serial: str | None = None) -> str:
    """Say what a person does about a conflict. `other_serial`: what the device there says it is."""
    if other_serial is not None:
        return (
            f"Look at it. Where {other_serial} was put in the place of {serial}, write {other_serial} in place "
            f"of {serial} into [[terminals]]; posd config check && sudo systemctl reload posd; where it was not, "
            f"correct base_url there, or say where {serial} is: posd terminals identity {serial} --base-url URL "
            '--operator NAME --note "WHY"'
        )
    return (
        f"Look at the terminals: posd terminals identity {serial} shows who claims to be it, and takes your decision. "
        f"So that it does not come again, pin its certificate (posd terminals pin {serial})"
    )


def words(kind: Conflict, serial: str, others: tuple[str, ...], old: str | None, other: Other | None) -> str:
    """Say what is wrong. `others`: what else answers; `old`: the address that was trusted last, or is configured.

    `other`: which terminal the device there is, where it is another one.
    """
    if other is not None:
        how = "announces itself (mDNS) as" if other.announced else "says that it is"
        return f"the device at {old} {how} terminal {other.serial}, not {serial}"
    if kind is Conflict.RIVALS:
        where = ", ".join(dict.fromkeys(filter(None, (old, *others))))
        return f"several devices answer as terminal {serial} ({where}), and none of them can prove that it is"
    return (
        f"terminal {serial} does not answer at {old} any more, and what answers at {', '.join(others)} cannot "
        "prove that it is this terminal"
    )
