"""The fleet: the terminals in the configuration, their addresses, and calls to them.

A terminal is its serial. Its address comes from the configuration, which always wins, or from an announcement. It may
change at any time: the next request uses the newest right one (see `claims`). An announced serial outside the fleet is
shown, never used. A terminal in the cloud is called at the configured address only: announcements on this network do
not concern it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec
import structlog

from posd.base.clocks import wall
from posd.base.money import AmountUnit
from posd.base.problems import Problem
from posd.config import TerminalConfig
from posd.config.profile import EDITIONS, AccessMode, Profiles, Table, resolve_path
from posd.config.schema import Auth
from posd.terminals import commission, members
from posd.terminals.addresses import AddressChange, Addresses
from posd.terminals.auth.webhooks import Headers
from posd.terminals.commission import Commission
from posd.terminals.contact import Contact, TerminalRequest
from posd.terminals.documents import Commissioned, Identity, Terminal
from posd.terminals.identity import Proof
from posd.terminals.members import Member, Members

log = structlog.get_logger("posd.fleet")


class AmountUnits(NamedTuple):
    """Units of the amounts sent to a terminal, and of those in its replies."""

    sent: AmountUnit
    answered: AmountUnit


class Fleet:
    """The terminals by serial."""

    def __init__(
        self,
        terminals: tuple[TerminalConfig, ...],
        profiles: Profiles = EDITIONS,
        now: Callable[[], datetime] = wall,
        clock_sure: Callable[[], bool] = lambda: True,
    ) -> None:
        """Resolve trust and headers of each terminal. Raise OSError or HeaderError if a file cannot be used.

        `clock_sure`: returns whether this machine's clock can judge the dates of certificates.
        """
        self._now = now
        self._members = Members(self.made(terminals), clock_sure)
        self._profiles = profiles
        self._commissions: dict[str, Commission] = {}
        self._versions: dict[str, str] = {}  # of the profiles in force, each computed on first use
        self.addresses = Addresses(self._members, now)
        self.contact = Contact(self._members, self.addresses)
        #: Called when the fleet changes.
        self.on_change: Callable[[], None] = lambda: None

    def __contains__(self, serial: object) -> bool:
        return serial in self._members.current

    @property
    def serials(self) -> tuple[str, ...]:
        """Serials of the fleet, in the order of the configuration."""
        return tuple(self._members.current)

    def resolve(self, serial: str | None) -> str:
        """Return the serial that a till means; it may omit it if there is only one. Raise Problem unknown_terminal."""
        fleet = list(self._members.current)
        if serial is None and len(fleet) == 1:
            return fleet[0]
        if serial is None:
            detail = (
                "cannot choose a terminal: none was named and the fleet has "
                f"{len(fleet)}; name one of them in `terminal`"
                if fleet
                else "there is no terminal: the configuration names none; add [[terminals]] with its serial"
            )
            raise Problem("unknown_terminal", detail, fleet=fleet)
        if serial not in self._members.current:
            raise Problem(
                "unknown_terminal",
                f"terminal {serial} is not in the fleet ({', '.join(fleet) or 'empty'}); "
                "check the serial, or add it to [[terminals]] in the configuration",
                fleet=fleet,
            )
        return serial

    def made(self, terminals: tuple[TerminalConfig, ...]) -> dict[str, Member]:
        """Return the members for `adopt` (see `members.made`)."""
        return members.made(terminals, self._now)

    def adopt(self, made: dict[str, Member], profiles: Profiles) -> None:
        """Replace the fleet by the members from `made`, with other profiles.

        The state of each terminal stays. Open calls continue unchanged, also those to a removed terminal.
        """
        before = self._lapsed
        gone = self._members.adopt(made)
        self._profiles = profiles
        self._versions.clear()
        self._tell_lapsed(but=before)
        self.on_change()
        self.addresses.reassign_announcements(gone)

    def access_mode(self, serial: str) -> AccessMode:
        """Return how a fleet member is called: on the local network or through the cloud."""
        return self._members.of(serial).config.access_mode

    def auth(self, serial: str) -> Auth:
        """Return the authentication scheme of calls to a fleet member."""
        return self._members.of(serial).config.auth

    def units(self, serial: str) -> AmountUnits:
        """Return the units of the amounts sent to, and by, a fleet member."""
        config = self._members.of(serial).config
        return AmountUnits(config.amount_unit, config.unit_of_answers)

    def answer_unit(self, serial: str) -> AmountUnit | None:
        """Return the unit of the amounts that a terminal sends, None outside the fleet."""
        member = self._members.current.get(serial)
        return None if member is None else member.config.unit_of_answers

    def webhook_signature(self, serial: str) -> str:
        """Return the kind of signature of a fleet member's webhooks, empty if none is expected."""
        return self._members.of(serial).config.webhook_signature

    def webhook_fault(self, serial: str, headers: Headers, body: bytes) -> str:
        """Return why the signature of a webhook is refused; empty if it is right, or none is expected.

        None is expected of a terminal outside the fleet.
        """
        member = self._members.current.get(serial)
        verifier = None if member is None else member.webhooks
        if verifier is None or not (fault := verifier.fault(headers, body)):
            return ""
        return (
            f'{fault}; terminal {serial} has webhook_signature = "{verifier.name}". Where that or its secret is not '
            "what the vendor says, correct it"
        )

    def rows(self, serial: str) -> Table:
        """Return the table of a fleet member's profile: its request for each operation."""
        config = self._members.of(serial).config
        return self._profiles[config.edition].table(config.access_mode)

    def profile_version(self, serial: str) -> str:
        """Return the version of a fleet member's profile."""
        if (known := self._versions.get(serial)) is None:
            config = self._members.of(serial).config
            known = self._versions[serial] = commission.version(config, self.rows(serial))
        return known

    def vouched(self, serial: str, operation: str) -> bool:
        """Return whether an operator vouches for an operation of a fleet member, by configuration or commissioning."""
        row, seen = self.rows(serial)[operation], self._commissions.get(serial)
        return commission.vouched(operation, row, self.profile_version(serial), seen)

    def remember(self, commissions: Mapping[str, Commission]) -> None:
        """Load the stored commissions of an earlier daemon."""
        self._commissions.update(commissions)
        self._tell_lapsed()

    def commission(self, seen: Commission) -> None:
        """Set what an operator saw working with a terminal."""
        self._commissions[seen.terminal] = seen

    @property
    def _lapsed(self) -> frozenset[str]:
        """The fleet members whose profile has changed since their commissioning."""
        seen = ((serial, self._commissions[serial].profile) for serial in self.serials if serial in self._commissions)
        return frozenset(serial for serial, profile in seen if profile != self.profile_version(serial))

    def _tell_lapsed(self, but: frozenset[str] = frozenset()) -> None:
        for serial in sorted(self._lapsed - but):
            detail = f"it was commissioned at {self._commissions[serial].at}, and its profile has changed since"
            log.warning("terminal.commission_lapsed", terminal=serial, detail=detail)

    def request(
        self,
        serial: str,
        operation: str,
        base_url: str,
        body: bytes | None = None,
        *,
        client_transaction_id: str = "",
        print_job_id: str = "",
    ) -> TerminalRequest:
        """Return the request of an operation at an address of a terminal, by its profile.

        The ids are for paths that contain them. Raise ValueError if the path needs a missing one.
        """
        row = self.rows(serial)[operation]
        path = resolve_path(
            row, terminal_serial=serial, client_transaction_id=client_transaction_id, print_job_id=print_job_id
        )
        return TerminalRequest(serial, base_url, row.method, path, body)

    async def warm_up(self) -> None:
        """Load the modules and clients of calls in advance, on a thread: it takes some 0.1 s."""
        await asyncio.to_thread(members.load, self._members.current.values())

    def heard_from(self, serial: str, at: str, *, brand: str | None = None, model: str | None = None) -> None:
        """Record a sign of life, and the brand and model that the terminal sent."""
        member = self._members.current.get(serial)
        if member is not None:
            member.last_seen = at
            member.brand = brand or member.brand
            member.model = model or member.model
            self.addresses.on_news(serial, AddressChange.HEARD)

    def document(self, serial: str, held: Mapping[str, str]) -> Terminal:
        """Return a fleet member as in the local API."""
        return next(item for item in self.documents(held, everything=False) if item.serial == serial)

    def documents(self, held: Mapping[str, str], *, everything: bool) -> Iterator[Terminal]:
        """Yield the terminals as in the local API; `held` is terminal -> transaction."""
        for serial, member in self._members.current.items():
            conflict = self.addresses.conflict(serial) is not None
            made = member.document(held.get(serial), self.addresses.no_address, conflict=conflict)
            yield self._with_commission(made)
        if everything:
            for item in self.addresses.strangers.values():
                yield Terminal(
                    serial=item.serial,
                    brand=item.brand,
                    model=item.model,
                    base_url=f"https://{item.hosts[0]}:{item.port}",
                    source="mdns",
                    reachable=None,
                    last_seen=item.seen_at,
                    transaction=None,
                    reason=None,
                    checked_at=None,
                    claims=[],
                    identity=Identity(proof=Proof.NONE, conflict=False, claims=[]),
                    in_fleet=False,
                )

    def _with_commission(self, made: Terminal) -> Terminal:
        seen = self._commissions.get(made.serial)
        if seen is None:
            return made
        if seen.profile != self.profile_version(made.serial):
            return msgspec.structs.replace(made, commission_lapsed=seen.at)
        known = Commissioned(at=seen.at, by=seen.operator, proven=list(seen.proven))
        return msgspec.structs.replace(made, commissioned=known)

    def cancel_calls(self) -> None:
        """Cancel the open calls and probes, because posd is stopping."""
        self.addresses.cancel_looks()
        self._members.cancel_calls()

    async def close(self) -> None:
        """Cancel the probes and wait for their end."""
        if looks := self.addresses.cancel_looks():
            await asyncio.wait(looks)
