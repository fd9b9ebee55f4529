"""A callback token leaves posd only in the request to its terminal. The test runs payments and searches every
output.
"""

import asyncio
import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from posd.base import ids
from posd.base.ids import Channel
from posd.base.redaction import REDACTED
from tests.cli.test_support import members
from tests.e2e.conftest import CHARGE
from tests.rig.commands import posd as command
from tests.rig.daemon import Daemon
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.secrets import ECHOES, undone
from tests.rig.simulated import configured_otherwise, simulated
from tests.rig.terminal import Request, ScriptedTerminal, acknowledgement, http
from tests.rig.webhooks import disk

PERSON = {"operator": "Ana", "note": "looked"}
SIMULATED = "SN-1"


class Day:
    """A daemon, all responses, and the callback URL of each payment and print job."""

    def __init__(self, posd: Daemon, terminal: ScriptedTerminal) -> None:
        self.posd = posd
        self.terminal = terminal
        self.answers: dict[str, bytes] = {}

    async def call(self, method: str, path: str, content: Any = None) -> Any:
        reply = await self.posd.call(method, path, content, socket=self.posd.admin_socket)
        self.answers[f"{len(self.answers)} {method} {path}"] = reply.body
        return reply.json

    async def ended(self, path: str, wanted: Mapping[str, Any]) -> Any:
        await self.call("PUT", path, wanted)
        return await self.call("GET", f"{path}/outcome?timeout=60")

    async def started(self) -> tuple[str, str]:
        """Start a payment of the scripted terminal. Return the id and the callback URL."""
        identity = str(uuid4())
        known = await self.call("PUT", f"/transactions/{identity}", CHARGE | {"terminal": self.terminal.serial})
        assert known.get("client_transaction_id") == identity, known
        (sent,) = (item for item in self.terminal.requests if identity.encode() in item.body)
        return identity, sent.callback

    async def send(self, url: str, content: bytes) -> int:
        return await deliver(url, content, self.posd.ca)


async def with_simulator(day: Day) -> None:
    """Run a charge, its refund, a decline and a print job on a simulated terminal."""
    paid, declined = str(uuid4()), str(uuid4())
    charge = CHARGE | {"terminal": SIMULATED}
    assert (await day.ended(f"/transactions/{paid}", charge))["result"] == "approved"
    refund = {"terminal": SIMULATED, "type": "refund", "original": paid}
    assert (await day.ended(f"/transactions/{uuid4()}", refund))["result"] == "approved"
    wanted = charge | {"metadata": {"scenario": "decline"}}
    assert (await day.ended(f"/transactions/{declined}", wanted))["result"] == "declined"
    job = {"terminal": SIMULATED, "document": {"text": "MY SHOP"}}
    assert (await day.ended(f"/print-jobs/{uuid4()}", job))["status"] == "COMPLETED"


async def refused(day: Day) -> None:
    """Send requests that the terminal refuses or answers with an error. Each reply quotes the callback URL."""

    async def quoting(status: int, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(status, request.body))

    for status in (422, 500, 200):
        day.terminal.start = day.terminal.print_start = partial(quoting, status)
        identity, _ = await day.started()
        await day.call("POST", f"/transactions/{identity}/reconcile")
        await day.call("POST", f"/transactions/{identity}/release", PERSON)
        await day.call("POST", f"/transactions/{identity}/resolve", PERSON | {"result": "declined"})
        job = {"terminal": day.terminal.serial, "document": {"text": "x"}}
        await day.call("PUT", f"/print-jobs/{uuid4()}", job)
    day.terminal.start = day.terminal.print_start = None


#: Placeholder of the callback URL in the terminal's messages.
HERE = "@@"
SAID = {"type": HERE, "code": HERE, "message": HERE}
RECEIPT = {"transaction_reference": HERE, "ticket_number": HERE, "franchise": HERE, HERE: {HERE: HERE}}
#: Kinds of events: status and further members. posd cannot use some of these events.
EVENTS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("CARD_PRESENTED", {"reading_type": HERE}),
    (HERE, {}),
    ("APPROVAL_REQUESTED", {"previous_status": HERE, "event_id": HERE}),
    ("DECLINED", {"failure_reason": SAID, "raw_response": RECEIPT}),
    ("APPROVAL", {"raw_response": RECEIPT}),
    ("CARD_PRESENTED", {}),
    ("APPROVAL", {"terminal": {"serial_number": HERE}}),
    ("APPROVAL", {"client_transaction_id": HERE}),
)
USED_OR_KEPT = (200, 400, 403)


async def echoed(day: Day, echo: Callable[[str], str]) -> None:
    """Send events that echo the callback URL in every text. Search replies echo the URL too."""
    identity, url = await day.started()
    operation = {"type": "CHARGE", "events_webhook_url": HERE, HERE: [HERE]}

    def written(document: str) -> bytes:
        return document.replace(HERE, echo(url)).encode()

    async def searched(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(404, written(json.dumps({"error": SAID}))))

    day.terminal.search = searched
    await day.call("POST", f"/transactions/{identity}/reconcile")
    for status, changes in EVENTS:
        members = {"operation": operation, "serial": day.terminal.serial, **changes}
        content = written(body(identity, status, **members).decode())
        assert await day.send(url, content) in USED_OR_KEPT
        assert await day.send(url, content[:-1]) == 400
        assert await day.send(url, content.replace(b"CHARGE", b"\xff")) in USED_OR_KEPT
    await day.call("POST", f"/transactions/{identity}/reconcile")
    assert (await day.call("GET", f"/transactions/{identity}/outcome"))["result"] == "declined"


async def echoed_in_print(day: Day, echo: Callable[[str], str]) -> None:
    """Send print webhooks that echo the callback URL."""
    job = str(uuid4())
    await day.call("PUT", f"/print-jobs/{job}", {"terminal": day.terminal.serial, "document": {"text": "x"}})
    url = day.terminal.prints[-1].print_callback
    for status in (HERE, "FAILED", "COMPLETED"):
        webhook = {"printJobId": job, "status": status, "errorCode": HERE, "errorMessage": HERE, HERE: HERE}
        content = json.dumps(webhook).replace(HERE, echo(url)).encode()
        assert await day.send(url, content) in USED_OR_KEPT
        assert await day.send(url, content[:-1]) == 400


async def misnamed(day: Day) -> None:
    """Send an acknowledgement with the callback URL as the terminal's serial."""

    async def acknowledging(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.body:  # a probe has no body
            writer.write(http(200, acknowledgement(request, request.callback)))

    day.terminal.start = acknowledging
    await day.started()


async def all_gets(posd: Daemon, socket: Path) -> dict[str, bytes]:
    """Return the responses of each GET in the API description. Call each GET with every id, with every choice of a
    query on the admin socket, and as a stream. A new call in the description is covered at once. The test fails for a
    new kind of id until `known` has an entry.
    """
    every_choice = socket == posd.admin_socket
    with disk(posd) as db:
        known = {
            "client_transaction_id": [row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")],
            "print_job_id": [row[0] for row in db.execute("SELECT print_job_id FROM print_jobs")],
            "serial": [SIMULATED],
            # one id in nine is enough for single calls, because the list shows all
            "id": [row[0] for row in db.execute("SELECT id FROM quarantine")][::9],
        }
    assert all(known.values())
    described = (await posd.call("GET", "/openapi.json")).json
    answers = {}
    transport = httpx2.AsyncHTTPTransport(uds=str(socket), verify=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://posd", timeout=90) as client:
        for path, methods in described["paths"].items():
            if "get" not in methods:
                continue
            names = re.findall(r"{(\w+)}", path)
            asked = [item for item in methods["get"].get("parameters", ()) if item["in"] == "query"]
            streams = "text/event-stream" in methods["get"]["responses"]["200"]["content"]
            for values in itertools.product(*(known[name] for name in names)):
                at = path.format(**dict(zip(names, values, strict=True)))
                for query in itertools.islice(queries(asked), None if every_choice else 1):
                    reply = await client.get(at, params=query)
                    answers[f"{at} {query}"] = reply.content
                    if streams and reply.status_code == 200:
                        stands = next(item for item in reply.json().values() if isinstance(item, list))
                        answers[f"{at} {query} stream"] = await streamed(client, at, query, len(stands))
    return answers


def queries(parameters: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a query for each value of each parameter that has a choice of values. Lists are complete, and no call
    waits.
    """
    ends = {"limit": "maximum", "timeout": "minimum"}
    whole = {name: item["schema"][ends[name]] for item in parameters if (name := item["name"]) in ends}
    yield whole
    for item in parameters:
        choices = item["schema"].get("enum", [True] if item["schema"].get("type") == "boolean" else [])
        yield from (whole | {item["name"]: str(choice).lower()} for choice in choices)


async def streamed(client: httpx2.AsyncClient, path: str, query: Mapping[str, Any], count: int) -> bytes:
    """Return a stream up to this many numbered messages, with the rest of the last chunk."""
    lines = []
    async with client.stream("GET", path, params=query, headers={"accept": "text/event-stream"}) as response:
        async for line in response.aiter_lines():
            lines.append(line)
            if line.startswith("data:"):
                count -= lines[-3].startswith("id:")
                if count <= 0:
                    break
    return "\n".join(lines).encode()


def commands(posd: Daemon, home: Path) -> Iterator[tuple[str, str]]:
    """Yield the output of the exporting commands, and the support archive."""
    for arguments in (
        *(["report", *choice] for choice in ([], ["--json"], ["--csv"], ["--html", "-"])),
        ["report", "--close", "--operator", "Ana", "--begin"],
        *([name, *choice] for name in ("list", "quarantine", "print-jobs", "status") for choice in ([], ["--json"])),
    ):
        done = command(*arguments, config=posd.config_file, socket=posd.admin_socket)
        assert done.returncode in (0, 1), done
        yield " ".join(arguments), done.stdout + done.stderr
    log, archive = home / "posd.log", home / "support.tar.gz"
    log.write_text("\n".join(map(json.dumps, posd.lines)))
    done = command("support", str(archive), "--yes", "--log", str(log), config=posd.config_file)
    assert done.returncode == 0, done
    yield from members(archive).items()


def all_tokens(posd: Daemon) -> set[str]:
    """Return the tokens of all records in the database and its quarantine."""
    with disk(posd) as db:
        subjects = [row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")]
        subjects += [row[0] for row in db.execute("SELECT print_job_id FROM print_jobs")]
        subjects += [row[0] for row in db.execute("SELECT subject FROM quarantine")]
    keys = [bytes.fromhex(line) for line in (posd.database.parent / "callback.key").read_text().split()]
    return {ids.token(key, channel, subject) for key in keys for channel in Channel for subject in subjects}


def found(tokens: set[str], answers: Mapping[str, bytes | str]) -> list[str]:
    """Return the responses that contain a token in any form."""
    places = []
    for name, answer in answers.items():
        text = answer if isinstance(answer, str) else answer.decode("utf-8", "replace")
        inside = [base64.b64decode(item + "==").decode("latin-1") for item in re.findall(r'"body":"([\w+/]+)=*"', text)]
        plain = undone("\n".join((text, *inside)))
        places += [name for run in re.findall(r"[\w-]{43,}", plain) if run[:43] in tokens or run[-43:] in tokens]
    return places


@pytest.mark.quick(1)
@pytest.mark.parametrize("forms", [("slashes", "the token alone"), tuple(ECHOES)], ids=["two forms", "all forms"])
async def test_no_output_of_posd_has_a_token(home: Path, terminal: ScriptedTerminal, forms: Sequence[str]) -> None:
    extra = f'{terminal.toml}[logging]\nlevel = "debug"\n'
    async with simulated(home, {SIMULATED: ""}, extra) as (posd, _):
        await configured_otherwise(posd, {'admin_group = ""': 'admin_group = ""\nfeed_group = ""'})
        day = Day(posd, terminal)
        await with_simulator(day)
        await refused(day)
        for form in forms:
            await echoed(day, ECHOES[form])
            await echoed_in_print(day, ECHOES[form])
        await misnamed(day)
        await day.call("POST", "/reprocess")
        tokens = all_tokens(posd)
        answers: dict[str, bytes | str] = {**day.answers}
        for socket in (posd.till_socket, posd.admin_socket, posd.directory / "run" / "feed.sock"):
            answers |= {f"{socket.stem} {name}": text for name, text in (await all_gets(posd, socket)).items()}
        answers |= dict(await asyncio.to_thread(lambda: list(commands(posd, home))))
        answers["log"] = "\n".join(map(json.dumps, posd.lines))
        with disk(posd) as db:
            stored = {str(row[0]): row[1] for row in db.execute("SELECT seq, body FROM events")}
            kept = {str(row[0]): row[1] for row in db.execute("SELECT id, body FROM quarantine")}
    assert len(found(tokens, stored)) > 5 * len(forms), "stored data stays verbatim"
    assert len(set(found(tokens, kept))) > 3 * len(forms)
    assert found(tokens, answers) == []
    final = [item for name, item in answers.items() if name.startswith("till") and "/outcome" in name]
    assert sum(REDACTED.encode() in item for item in final if isinstance(item, bytes)) >= len(forms)
    assert [name for name in answers if name.startswith("feed /v1/feed") and name.endswith("stream")]
