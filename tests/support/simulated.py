"""A daemon with simulated terminals, and chains of operations with a check of every reference."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from posd.simulator import Settings, Simulator
from posd.simulator.ledger import Ledger
from posd.tls import issue
from posd.tls.files import TlsFiles
from tests.support.daemon import Daemon, running
from tests.support.webhooks import disk

#: Factor by which terminals are faster than people. At this speed an approved cycle takes about 10 ms.
SPEED = 2000.0


#: Settings of a daemon that soon searches for a payment, and that can or cannot prove `not_started` (`confirmed`).
SEARCHING = """
[reconcile]
first_event_grace_seconds = 0.5
stall_seconds = {stall}
stall_after_request_seconds = {stall_after_request}
settle_seconds = 1
probe_with_abort = {confirmed}
[profile.search]
confirmed = {confirmed}
[profile.abort]
confirmed = {confirmed}
"""


@asynccontextmanager
async def simulated(
    directory: Path,
    terminals: Mapping[str, str],
    extra: str = "",
    own: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    **settings: Any,
) -> AsyncIterator[tuple[Daemon, dict[str, Simulator]]]:
    """Run a daemon and simulated terminals for the block. `terminals`: serial -> further lines of the terminal's
    configuration. `settings` apply to all simulators. `own` applies to the simulator of a serial. The cloud service and
    the terminals of the network call the daemon by different names.
    """
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(running(directory, ""))
        simulators, entries = {}, ""
        for number, (serial, lines) in enumerate(terminals.items()):
            state = directory / f"terminal-{number}"
            made = issue.init(state / "tls", names=["localhost"], addresses=["127.0.0.1"])
            simulators[serial] = simulator = await stack.enter_async_context(
                Simulator(
                    Settings(
                        **{"speed": SPEED, "mdns": False, "wait_seconds": 0} | settings | dict(own.get(serial, {})),
                        state=state,
                        serial=serial,
                        certificate=made.certificate,
                        private_key=made.private_key,
                        trust=daemon.ca,
                    )
                )
            )
            entries += f'[[terminals]]\nserial = "{serial}"\nbase_url = "{simulator.base_url}"\n'
            entries += f'ca_file = "{made.ca_certificate}"\n{lines}\n'
        await configured_otherwise(daemon, {"[discovery]": f"{entries}{extra}[discovery]"} | public(daemon))
        yield daemon, simulators


def simulate(serial: str, listen: str, made: TlsFiles, state: Path, trust: Path, speed: float) -> tuple[str, ...]:
    """Return the arguments of posd for a simulated terminal that prints its ledger."""
    options = {
        "--serial": serial,
        "--listen": listen,
        "--cert": made.certificate,
        "--key": made.private_key,
        "--state": state,
        "--trust": trust,
        "--speed": speed,
    }
    return ("simulate", "--json", *(str(word) for pair in options.items() for word in pair))


def undelivered(ledger: Ledger) -> set[str]:
    """Return the ids of the events that a terminal will still deliver."""
    over = {line["event_id"] for line in (*ledger.of("attempt", retry_in_seconds=None), *ledger.of("dropped"))}
    return {line["event_id"] for line in ledger.of("event")} - over


def public(daemon: Daemon) -> dict[str, str]:
    """Return the setting of the public name, by which an outside service reaches the listener."""
    return {"[database]": f'public_url = "https://localhost:{daemon.port}"\n[database]'}


async def configured_otherwise(daemon: Daemon, changes: Mapping[str, str]) -> None:
    """Stop the daemon, change its configuration, and start it on the same port."""
    assert await daemon.stop() == 0
    for old, new in changes.items():
        assert daemon.config.count(old) == 1, old
        daemon.config = daemon.config.replace(old, new)
    await daemon.start()


@dataclass(frozen=True)
class Step:
    """One operation of a chain: the name in the chain, the type, the original, and the step whose reference is sent."""

    name: str
    kind: str
    original: str = ""
    sends: str = ""


def chain(text: str) -> tuple[Step, ...]:
    """Parse a chain. In `p=pre-auth, r=re-auth p, c=capture p:r` the capture of p is sent with the reference of r. By
    default, the reference of the original is sent.
    """
    steps = []
    for item in text.split(", "):
        name, _, rest = item.partition("=")
        kind, _, to = rest.partition(" ")
        original, _, sends = to.partition(":")
        steps.append(Step(name, kind, original, sends or original))
    return tuple(steps)


@dataclass
class Played:
    """Result of a chain. Each step has an id and the reference in the approval."""

    identities: dict[str, str] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)


async def play(daemon: Daemon, simulator: Simulator, steps: tuple[Step, ...], *, by: str) -> None:
    """Run a chain. Check each reference on the wire, in the terminal's record, in the database and in the API.

    `by`: how the till names originals. `original` is the id. `transaction_reference` is the reference from the outcome.
    `TRANSACTION_REFERENCE` is this reference in upper case.
    """
    played = Played()
    for step in steps:
        identity = played.identities[step.name] = str(uuid4())
        request: dict[str, Any] = {"type": step.kind}
        if step.kind not in ("void", "refund"):
            # The amount falls from step to step, because a capture must not exceed the reserved amount.
            request["amount"] = {"subtotal_iva0": 10.01 - len(played.identities)}
        if step.original:
            request |= named(played, step, by)
        reply = await daemon.call("PUT", f"/transactions/{identity}", request)
        assert reply.status == 201, reply.body
        outcome = await daemon.outcome(identity)
        assert outcome["result"] == "approved", outcome
        played.references[step.name] = outcome["transaction_reference"]
        assert_wire(simulator, played, step)
        await assert_record(daemon, simulator, played, step, by)
    assert len(set(played.references.values())) == len(steps)
    for step in steps:
        derived = [played.identities[item.name] for item in steps if item.original == step.name]
        assert (await daemon.transaction(played.identities[step.name]))["derived"] == derived


def named(played: Played, step: Step, by: str) -> dict[str, str]:
    """Return the till's name for the original of a step."""
    if by == "original":
        return {"original": played.identities[step.original]}
    reference = played.references[step.sends]
    return {"transaction_reference": reference.upper() if by.isupper() else reference}


def assert_wire(simulator: Simulator, played: Played, step: Step) -> None:
    """Check that the terminal received one request with only this reference, at the path of the operation."""
    identity = played.identities[step.name]
    (sent,) = (json.loads(text) for text in simulator.terminal.requests if identity in text)
    assert sent.get("transaction_reference") == played.references.get(step.sends)
    assert ("amount" in sent) == (step.kind not in ("void", "refund"))
    (start,) = simulator.ledger.of("start", client_transaction_id=identity)
    assert (start["operation"], start["access_mode"], start["http_status"]) == (step.kind, "local", 200)
    others = {item for item in played.references.values() if item != played.references.get(step.sends)}
    assert not any(other in json.dumps(sent) for other in others)


async def assert_record(daemon: Daemon, simulator: Simulator, played: Played, step: Step, by: str) -> None:
    """Check that the database and the API keep sent and received references apart."""
    identity, original = played.identities[step.name], played.identities.get(step.original)
    sends, gave = played.references.get(step.sends), played.references[step.name]
    with disk(daemon) as db:
        query = """SELECT transaction_reference, given_reference, derives_from, original
                   FROM transactions WHERE client_transaction_id = ?"""
        row = db.execute(query, (identity,)).fetchone()
    assert row == (sends, gave.upper(), original, original if by == "original" else None)
    document = await daemon.transaction(identity)
    assert (document["transaction_reference"], document["original"]) == (sends, original)
    assert (document["type"], document["attention"], document["next_step"]) == (step.kind, [], "done")
    outcome = document["outcome"]
    (final,) = simulator.ledger.of("final", client_transaction_id=identity)
    given = ("transaction_reference", "ticket_number")
    assert [outcome[name] for name in given] == [final[name] for name in given]
    assert (outcome["reversal"] is not None) == (step.kind in ("void", "refund"))
    stated = outcome["final_event"]
    assert stated["raw_response"]["transaction_reference"] == gave
    echoed = sends if step.kind in ("re-auth", "capture") else None
    assert stated["operation"].get("transaction_reference") == echoed
