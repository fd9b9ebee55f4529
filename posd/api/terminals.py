"""Calls on terminals: addresses, identity decisions, and commissioning."""

from typing import Annotated
from uuid import uuid4

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from posd.api.documents import Terminals
from posd.base.json_types import OPEN, Uuid
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls import parameters
from posd.calls.app import json_response
from posd.calls.streams import CallContext
from posd.payments import rows
from posd.payments.answers import RESULTS, SearchFailed
from posd.payments.model import SearchResult
from posd.payments.reconcile import Reconciler
from posd.records import terminals
from posd.records.request import FieldReader, Signed, decided
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Commission, Part

#: A response waits at most this long for probes of terminals, in seconds.
CHECK_SECONDS = 5.0
#: Longest base URL, in characters.
MAX_URL = 300


class IdentityDecision(Signed, frozen=True):
    """Operator's decision about which device is the terminal."""

    base_url: Annotated[
        str,
        Meta(
            description="the address of the device that is the terminal, as in `identity.claims`",
            min_length=1,
            max_length=MAX_URL,
            pattern=r"\S",
        ),
    ]


def _read_decision(reader: FieldReader, operator: str, note: str, uid: int | None) -> tuple[str, str, str, int | None]:
    return reader.required_text("base_url", MAX_URL), operator, note, uid


class CommissionRequest(Signed, frozen=True):
    """Operator's record of functions that work with a terminal."""

    proven: Annotated[
        list[Part],
        Meta(
            description="the parts that work; omitted parts no longer count, so an empty list withdraws all",
            max_length=len(Part),
        ),
    ]


def _read_seen(
    reader: FieldReader, operator: str, note: str, uid: int | None
) -> tuple[str, str, int | None, tuple[Part, ...]]:
    """Return operator, note and user id. Also return the named parts without duplicates, in the order of `Part`."""
    given = reader.members.get("proven")
    if not isinstance(given, list) or len(given) > len(Part):
        reader.fault("/proven", f"is required: a list of at most {len(Part)} of {', '.join(Part)}")
        given = []
    for place, word in enumerate(given):
        if word not in list(Part):
            reader.fault(f"/proven/{place}", f"must be one of {', '.join(Part)}")
    return operator, note, uid, tuple(part for part in Part if part in given)


class Probe(msgspec.Struct, frozen=True):
    """Result of a search for a payment that never existed."""

    client_transaction_id: Annotated[Uuid, Meta(description="the requested id; nothing was ever sent under it")]
    result: Annotated[SearchResult, OPEN, Meta(description="the result; `none` if the search works")]
    reason: Annotated[str | None, Meta(description="why the terminal's reply is unusable; else null")]
    webhook_signature: Annotated[
        str, Meta(description="the signature that the terminal's webhooks must have, empty if none is expected")
    ]
    found_before: Annotated[
        bool, Meta(description="whether this search (its method, path, pointer) has found a payment of the terminal")
    ]


class TerminalCalls(msgspec.Struct, eq=False):
    """Handlers of /v1/terminals."""

    context: CallContext
    store: Store
    fleet: Fleet
    reconciler: Reconciler

    async def list_terminals(self, request: Request) -> Response:
        """`GET /terminals`: the fleet, and with `all=true` announced terminals outside it.

        With `check=true` the call waits for probes of terminals without a recent probe. Without it, the probes run in
        the background.
        """
        query = request.state.query
        if query["check"]:
            await self.fleet.check_stale(CHECK_SECONDS)
        else:
            self.fleet.request_probes()
        held = await self.context.read(rows.leases)
        return json_response(Terminals(list(self.fleet.documents(held, everything=query["all"]))))

    async def get_terminal(self, request: Request) -> Response:
        """`GET /terminals/{serial}`: one terminal, of the fleet or announced."""
        serial = parameters.path(request, parameters.SERIAL)
        self.fleet.request_probes()
        held = await self.context.read(rows.leases)
        for document in self.fleet.documents(held, everything=True):
            if document.serial == serial:
                return json_response(document)
        raise Problem("not_found", f"terminal {serial} is neither in the fleet nor announced in this network")

    async def decide_identity(self, request: Request) -> Response:
        """`POST /terminals/{serial}/identity`: trust the device at an address to be the terminal."""
        serial = parameters.path(request, parameters.SERIAL)
        decision = decided(
            (_read_decision, IdentityDecision), request.state.body, request.state.uid, "nothing was decided"
        )
        terminal = self.fleet.known(serial)
        trusted = terminal.addresses.decision(*decision)
        await terminals.decide_identity(self.store, terminal, trusted)
        return await self._document(serial)

    async def probe_terminal(self, request: Request) -> Response:
        """`POST /terminals/{serial}/probe`: search on the terminal for a payment that never existed."""
        serial = parameters.path(request, parameters.SERIAL)
        parameters.check_no_body(request)
        terminal, unknown = self.fleet.known(serial), str(uuid4())
        answer, found_before = await self.reconciler.probe(serial, unknown)
        reason = answer.reason if isinstance(answer, SearchFailed) else None
        signature = terminal.config.webhook_signature
        return json_response(Probe(unknown, RESULTS[type(answer)], reason, signature, found_before))

    async def commission_terminal(self, request: Request) -> Response:
        """`POST /terminals/{serial}/commission`: record the functions that were seen working."""
        serial = parameters.path(request, parameters.SERIAL)
        seen = decided((_read_seen, CommissionRequest), request.state.body, request.state.uid, "nothing was recorded")
        profile, at = self.fleet.known(serial).profile_version, iso(self.context.now())
        await terminals.record_commission(self.store, self.fleet, Commission(serial, at, *seen, profile))
        return await self._document(serial)

    async def _document(self, serial: str) -> Response:
        held = await self.context.read(rows.leases)
        return json_response(self.fleet.document(self.fleet.of(serial), held))
