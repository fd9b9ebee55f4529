"""Rules for the identity of a terminal. An address alone does not identify it. No I/O.

Any device on the network can announce a serial, and reply. So posd uses a new address of a terminal only if the device
there proves its identity. The proof is the pinned certificate, or a certificate of the configured CA for the serial.
Without proof, a new address is used only under three conditions:

- no payment is open on the terminal;
- no device has replied at the last trusted address for some time;
- only one device replies under the serial.

Otherwise there is an identity conflict: nothing is sent, and the operator decides. A configured address overrides
announcements.

An operator vouches for a row of the profile in one of two ways: by `confirmed = true` in the configuration, or by
commissioning the terminal with its present profile (`Commission.proven`). After a change of the profile, the
commissioning does not count until the operator repeats it.
"""

import hashlib
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from posd.base.json_types import OPEN, Moment
from posd.base.problems import RemedyStep, remedy
from posd.config.profile import OperationRow, Table

if TYPE_CHECKING:
    from posd.config import TerminalConfig

#: Seconds without a reply from the last trusted address before another address may replace it. If only this condition
#: is missing, a call waits until it holds.
LOST_SECONDS = 5.0


class Proof(StrEnum):
    """Proof that a device is the terminal."""

    PINNED = "pinned"  # the pinned certificate or key
    CA = "ca"  # a certificate of the configured CA for the serial
    NONE = "none"


class LastTrusted(Enum):
    """State of the last trusted address."""

    NEVER = auto()  # there is none: no payment was sent yet, and the operator has not decided
    ANSWERS = auto()
    UNKNOWN = auto()  # not probed since its announcement, or since the start of posd
    SILENT = auto()  # no reply, or another device replies; the terminal may be back in a moment
    LOST = auto()  # silent for `LOST_SECONDS`; one lost packet is not enough to use another device


class UsableAddress(Enum):
    """Address to use."""

    CONFIGURED = auto()
    NEWEST = auto()  # the best announced address, else the last trusted one
    PROVEN = auto()  # the best address at which the certificate has the serial
    TRUSTED = auto()  # the last trusted address
    NEW = auto()  # the address of the only claimant: the terminal has moved


class AddressConflict(StrEnum):
    """Reason why no address may be used."""

    RIVALS = "rivals"  # several devices reply under the serial
    MOVED = "moved"  # the trusted address is silent, and the device that replies elsewhere has no proof
    SERIAL = "serial"  # the device at the address reports another serial


def judge(
    *,
    pinned: bool,
    proven: bool,
    old: LastTrusted,
    claimants: int,
    proved: bool = False,
    decided: bool = False,
    contested: bool = False,
    is_open: bool = False,
) -> UsableAddress | AddressConflict:
    """Return which address of a terminal to use, or the conflict that forbids every address.

    The terminal has no configured address. `pinned`: whether a certificate or key is pinned. `proven`: whether a device
    replies whose certificate has the serial. `old`: state of the last trusted address. `claimants`: number of devices
    that reply under the serial at other addresses. `proved`: whether the device at the last trusted address had a
    certificate with the serial. `decided`: whether the operator decided that this device is the terminal. `contested`:
    whether the operator then rejected other devices. `is_open`: whether a payment of the terminal is open.
    """
    if pinned:
        return UsableAddress.NEWEST
    if proven:
        return UsableAddress.PROVEN
    if old is LastTrusted.NEVER:
        return AddressConflict.RIVALS if claimants > 1 else UsableAddress.NEWEST
    if not claimants or old is LastTrusted.UNKNOWN:
        return UsableAddress.TRUSTED
    if old is LastTrusted.ANSWERS:  # a device that the operator has rejected must not stop payments
        return UsableAddress.TRUSTED if decided else AddressConflict.RIVALS
    if claimants > 1:
        return AddressConflict.RIVALS
    if is_open or proved or contested:
        return AddressConflict.MOVED
    return UsableAddress.NEW if old is LastTrusted.LOST else UsableAddress.TRUSTED


class Trusted(msgspec.Struct, frozen=True):
    """Trust record: the last trusted address of a terminal. A payment was sent there, or the operator chose it.

    The record is stored. `at` is ISO 8601. `turned_down`: what the operator rejected: addresses of other devices, and
    another serial that is announced at this address. `other_serial`: another serial that the device there has reported
    since.
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
        """Whether the operator chose this address."""
        return self.operator is not None


class OtherTerminal(msgspec.Struct, frozen=True):
    """Another terminal at the address of this terminal.

    `announced`: whether only an announcement says so. Otherwise the device itself reported the other serial.
    """

    serial: str
    announced: bool


#: Source of an address that is claimed for a terminal. `trusted`: it was trusted last, and is not announced now.
ClaimSource = Literal["config", "mdns", "trusted"]


ProofWord = Annotated[
    Proof, OPEN, Meta(description="`pinned`: the pinned certificate; `ca`: one signed by the named CA, with the serial")
]


class Claimant(msgspec.Struct, frozen=True):
    """One address that is claimed for the terminal."""

    base_url: Annotated[str, Meta(description="the address")]
    source: Annotated[
        ClaimSource,
        OPEN,
        Meta(description="source of the claim; `trusted`: it was used last, and is not announced now"),
    ]
    since: Annotated[Moment | None, Meta(description="when the address became known, null before the first check")]
    proof: ProofWord


#: Command of the step that edits the configuration. `daemon/status.py` adds the file and the line to the command.
EDIT = "sudo editor"


class OpenConflict(msgspec.Struct, frozen=True):
    """Open conflict: its kind, start and claims, the finding as text, and the next steps."""

    kind: AddressConflict
    since: str
    claims: tuple[Claimant, ...]
    what: str
    steps: tuple[RemedyStep, ...]

    @property
    def detail(self) -> str:
        """The finding, its effect, and the next step."""
        if self.kind is AddressConflict.SERIAL:  # posd still searches there for an earlier start
            return f"{self.what}. No payment is sent to it. What to do: {remedy(self.steps)}"
        return f"{self.what}. Nothing is sent to it. What to do: {remedy(self.steps)}"


def steps(serial: str, other_serial: str | None = None) -> tuple[RemedyStep, ...]:
    """Return the next steps for a conflict. `other_serial`: the other serial that the device reports."""
    if other_serial is None:
        return (
            RemedyStep("check which devices claim to be the terminal, and decide", f"posd terminals identity {serial}"),
            RemedyStep("to avoid this, pin it, or write its base_url if it has no TLS", f"posd terminals pin {serial}"),
        )
    decide = f'posd terminals identity {serial} --base-url URL --operator NAME --note "WHY"'
    return (
        RemedyStep(
            f"check the device; if {other_serial} was put in the place of {serial}, write {other_serial} in place of "
            f"{serial} into [[terminals]]",
            EDIT,
        ),
        RemedyStep("", "posd config check && sudo systemctl reload posd"),
        RemedyStep(f"if it was not, correct base_url in [[terminals]], or give the address of {serial}", decide),
    )


def words(
    kind: AddressConflict, serial: str, others: tuple[str, ...], old: str | None, other: OtherTerminal | None
) -> str:
    """Return the finding of a conflict as text. `others`: other addresses at which a device replies.

    `old`: the last trusted or the configured address. `other`: the other terminal at that address, or None.
    """
    if other is not None:
        how = "announces itself (mDNS) as" if other.announced else "says that it is"
        return f"the device at {old} {how} terminal {other.serial}, not {serial}"
    if kind is AddressConflict.RIVALS:
        where = ", ".join(dict.fromkeys(filter(None, (old, *others))))
        return f"several devices answer as terminal {serial} ({where}), and none can prove that it is the one"
    return (
        f"terminal {serial} does not answer at {old} any more, and the device at {', '.join(others)} cannot "
        "prove that it is this terminal"
    )


class Part(StrEnum):
    """Function of a terminal that an operator can see working (local API, `commission`)."""

    START = "start"
    ABORT = "abort"
    SEARCH = "search"
    PRINT = "print"
    PRINT_JOB = "print_job"
    CALLBACK = "callback"
    SIGNATURE = "signature"
    AMOUNT_UNIT = "amount_unit"


class Commission(msgspec.Struct, frozen=True):
    """Commissioning: functions of a terminal that an operator saw working. `profile`: version of its profile then."""

    terminal: str
    at: str
    operator: str
    note: str
    uid: int | None
    proven: tuple[Part, ...]
    profile: str


def profile_version(terminal: "TerminalConfig", table: Table) -> str:
    """Return the version of a terminal's profile: a digest of the settings that a proof depends on, without secrets.

    These settings are the rows of the profile (without `confirmed`), the access mode, the names of the headers, the
    authentication of calls and webhooks, and the units of amounts. In the cloud the address of the service is one of
    them. On this network the address does not count, because a terminal can move.
    """
    cloud = terminal.access_mode == "cloud"
    rows = {name: msgspec.structs.asdict(row) | {"confirmed": None} for name, row in table.items()}
    parts = (
        sorted(rows.items()),
        terminal.access_mode,
        terminal.base_url if cloud else terminal.scheme,
        sorted(name.lower() for name in terminal.headers),
        terminal.auth,
        msgspec.structs.asdict(terminal.hash_encrypt) if terminal.auth == "hash-encrypt" else None,
        terminal.amount_unit,
        terminal.unit_of_answers,
        terminal.webhook_signature,
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def vouched(operation: str, row: OperationRow, profile: str, seen: Commission | None) -> bool:
    """Return whether an operator vouches for a row of the profile (`operation`), so that its replies are proof.

    `profile`: the present version. `seen`: the commissioning of the terminal, or None.
    """
    return row.confirmed or (seen is not None and seen.profile == profile and operation in seen.proven)
