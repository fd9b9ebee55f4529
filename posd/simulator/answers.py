"""Answers: what the terminal would say, and what a scenario makes of it."""

import asyncio
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from http import HTTPStatus
from random import Random
from typing import Any

from posd.simulator import wire
from posd.simulator.scenario import Fault, Reply, draw

#: HTTP status and JSON body.
Usual = tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it goes out: `delay` terminal seconds from now, and not before `awaited` is done."""

    status: int
    body: bytes
    content_type: str = "application/json"
    delay: float = 0.0
    fault: Fault | None = None
    awaited: asyncio.Future[Any] | None = None

    @property
    def waits(self) -> bool:
        """It does not go out at once."""
        return self.fault is Fault.SILENT or self.awaited is not None or self.delay > 0

    @property
    def http_status(self) -> int | None:
        """The status that reaches the caller; None where no answer does."""
        return None if self.fault in (Fault.LOST, Fault.SILENT) else int(self.status)


def plain(usual: Usual) -> Answer:
    """Return the usual answer."""
    status, body = usual
    return Answer(status, wire.encode(body))


def apply(reply: Reply, usual: Usual, rng: Random, awaited: asyncio.Future[Any] | None = None) -> Answer:
    """Return what a scenario makes of the usual answer."""
    status, body = usual
    if reply.status is not None:
        status = reply.status
        if status >= 400:
            body = {"code": f"HTTP_{status}", "message": _phrase(status)}
    if reply.body is not None:
        raw = reply.body.encode()
    else:
        raw = wire.encode(body)
        if reply.set or reply.remove:
            raw = wire.encode(changed(wire.decode(raw), reply.set, reply.remove))
    return Answer(int(status), raw, reply.content_type, draw(reply.after, rng), reply.fault, awaited)


def changed(value: Any, members: Mapping[str, Any], removed: Iterable[str]) -> Any:
    """Return JSON with members replaced, added and removed, each named by its path with points.

    Of a list each item is changed. What a path leads through and is no object becomes one.
    """
    if isinstance(value, list):
        return [changed(item, members, removed) for item in value]
    value = deepcopy(value)
    for path, member in members.items():
        *above, name = path.split(".")
        parent = value
        for part in above:
            if not isinstance(parent.get(part), dict):
                parent[part] = {}
            parent = parent[part]
        parent[name] = member
    for path in removed:
        *above, name = path.split(".")
        parent = value
        for part in above:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent.pop(name, None)
    return value


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an error without a name"
