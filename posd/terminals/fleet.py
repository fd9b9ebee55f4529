"""The fleet: the terminals that the configuration names: who they are, where they are, how they are called.

A terminal is its serial. Its address comes from the configuration, which always wins, or from an announcement, and may
change at any time: the next request uses the newest that is right (see `claims`). An announced serial outside the fleet
is shown, never used. A terminal in the cloud is called at the configured address alone: what is announced on this
network says nothing of it.
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
from posd.terminals.addresses import Addresses, News
from posd.terminals.auth.webhooks import Headers
from posd.terminals.commission import Commission
from posd.terminals.contact import Contact, TerminalRequest
from posd.terminals.documents import Commissioned, Identity, Terminal
from posd.terminals.identity import Proof
from posd.terminals.members import Member, Members

log = structlog.get_logger("posd.fleet")


class Units(NamedTuple):
    """Of the amounts that a terminal is sent, and of those that it answers with."""

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
        """Resolve trust and headers of each terminal. Raise OSError or HeaderError where a file cannot be used.

        `clock_sure`: whether the dates of certificates can be judged by the clock of this machine now.
        """
        self._now = now
        self._members = Members(self.made(terminals), clock_sure)
        self._profiles = profiles
        self._commissions: dict[str, Commission] = {}
        self._versions: dict[str, str] = {}  # of the profiles in force, each made when it is asked for
        self.addresses = Addresses(self._members, now)
        self.contact = Contact(self._members, self.addresses)
        #: Called when the fleet is another one.
        self.on_change: Callable[[], None] = lambda: None

    def __contains__(self, serial: object) -> bool:
        return serial in self._members.current

    @property
    def serials(self) -> tuple[str, ...]:
        """The serials of the fleet, as configured."""
        return tuple(self._members.current)

    def resolve(self, serial: str | None) -> str:
        """Return the serial that a till means; none is enough where there is one. Raise Problem unknown_terminal."""
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
        """Return what `adopt` takes; see `members.made`."""
        return members.made(terminals, self._now)

    def adopt(self, made: dict[str, Member], profiles: Profiles) -> None:
        """Be another fleet from now on (see `made`), called by other profiles.

        What is known of a terminal stays known. Calls under way go on as they began, also to one that is gone.
        """
        before = self._lapsed
        gone = self._members.adopt(made)
        self._profiles = profiles
        self._versions.clear()
        self._tell_lapsed(but=before)
        self.on_change()
        self.addresses.sort_strangers(gone)

    def access_mode(self, serial: str) -> AccessMode:
        """Return how a fleet member is called: on the local network or through the cloud."""
        return self._members.of(serial).config.access_mode

    def auth(self, serial: str) -> Auth:
        """Return how calls to a fleet member are authenticated beside their headers."""
        return self._members.of(serial).config.auth

    def units(self, serial: str) -> Units:
        """Return the units of the amounts that a fleet member is sent, and sends."""
        config = self._members.of(serial).config
        return Units(config.amount_unit, config.unit_of_answers)

    def answer_unit(self, serial: str) -> AmountUnit | None:
        """Return the unit of the amounts that a terminal sends, None where it is not in the fleet."""
        member = self._members.current.get(serial)
        return None if member is None else member.config.unit_of_answers

    def webhook_signature(self, serial: str) -> str:
        """Return how the webhooks of a fleet member are signed, empty where no signature is expected."""
        return self._members.of(serial).config.webhook_signature

    def webhook_fault(self, serial: str, headers: Headers, body: bytes) -> str:
        """Say why a webhook is refused, by its signature; empty where it is right, or none is expected of a terminal.

        None is expected of a terminal that is not in the fleet.
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
        """Return how a fleet member does what: the table of the profile that it is called by."""
        config = self._members.of(serial).config
        return self._profiles[config.edition].table(config.access_mode)

    def profile_version(self, serial: str) -> str:
        """Return the version of the profile that a fleet member is called by."""
        if (known := self._versions.get(serial)) is None:
            config = self._members.of(serial).config
            known = self._versions[serial] = commission.version(config, self.rows(serial))
        return known

    def vouched(self, serial: str, operation: str) -> bool:
        """Whether a person vouches for an operation of a fleet member: by the configuration, or by commissioning it."""
        row, seen = self.rows(serial)[operation], self._commissions.get(serial)
        return commission.vouched(operation, row, self.profile_version(serial), seen)

    def remember(self, commissions: Mapping[str, Commission]) -> None:
        """Know what was seen working with each terminal, as an earlier daemon left it."""
        self._commissions.update(commissions)
        self._tell_lapsed()

    def commission(self, seen: Commission) -> None:
        """Know from now on what was seen working with a terminal."""
        self._commissions[seen.terminal] = seen

    @property
    def _lapsed(self) -> frozenset[str]:
        """The fleet members whose profile has changed since they were commissioned."""
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
        """Return the request of an operation at an address of a terminal, as the profile has it.

        The ids are for paths that have them. Raise ValueError where the path needs one that is not given.
        """
        row = self.rows(serial)[operation]
        path = resolve_path(
            row, terminal_serial=serial, client_transaction_id=client_transaction_id, print_job_id=print_job_id
        )
        return TerminalRequest(serial, base_url, row.method, path, body)

    async def warm_up(self) -> None:
        """Load what calls need, so that the first does not wait for it. Beside the loop: it takes some 0.1 s."""
        await asyncio.to_thread(members.load, self._members.current.values())

    def heard_from(self, serial: str, at: str, *, brand: str | None = None, model: str | None = None) -> None:
        """Note a sign of life, and what the terminal said of itself."""
        member = self._members.current.get(serial)
        if member is not None:
            member.last_seen = at
            member.brand = brand or member.brand
            member.model = model or member.model
            self.addresses.on_news(serial, News.HEARD)

    def document(self, serial: str, held: Mapping[str, str]) -> Terminal:
        """Return a fleet member as the local API shows it."""
        return next(item for item in self.documents(held, everything=False) if item.serial == serial)

    def documents(self, held: Mapping[str, str], *, everything: bool) -> Iterator[Terminal]:
        """Yield the terminals as the local API shows them; `held` is terminal -> transaction."""
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

    def hurry(self) -> None:
        """End the calls and looks under way: posd is stopping."""
        self.addresses.cancel_looks()
        self._members.hurry()

    async def close(self) -> None:
        """Stop looking."""
        if looks := self.addresses.cancel_looks():
            await asyncio.wait(looks)
