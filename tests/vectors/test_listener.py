"""The vectors against a running daemon: the replies of its webhook listener, its records, and its local API."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from posd.base.ids import Channel, path, token
from posd.base.json_types import decode
from posd.payments.wire import read_event
from tests.rig.daemon import Daemon, living, toml
from tests.rig.https import connect
from tests.rig.prints import SILENT
from tests.rig.shop import QUIET
from tests.rig.terminal import ScriptedTerminal, scripted_terminal
from tests.rig.webhooks import disk
from tests.vectors.case import FLEET, IDENTITY, KEYS, MAX_BODY_BYTES, MERCHANT, OTHER, TERMINAL, Case, content
from tests.vectors.test_vectors import CASES, FOUND

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = "job-1042"
#: Connections over which vectors are sent at the same time.
LINES = 8
#: Maximum duration of a wait for a reply, in seconds.
PATIENCE_SECONDS = 60.0
#: Maximum number of replies 503 to one vector.
MOST_REFUSALS = 100


@dataclass
class World:
    """A daemon that knows the payment and the print job of the vectors, and its terminal."""

    daemon: Daemon
    terminal: ScriptedTerminal


@asynccontextmanager
async def world(merchant: str = "") -> AsyncIterator[World]:
    """Run a daemon with the keys and the fleet of the vectors for the block. At the end check that the log has no
    fault.
    """
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        (home / "credentials").mkdir()
        (home / "credentials" / "callback.key").write_text("\n".join(KEYS))
        async with scripted_terminal(home, TERMINAL) as terminal:
            others = "".join(f'[[terminals]]\nserial = "{serial}"\n' for serial in FLEET if serial != TERMINAL)
            extra = f'{QUIET}{SILENT}[merchant]\nid = "{merchant}"\n'
            config = toml(home, terminal.toml + others, extra)
            config = config.replace("[webhooks]\n", f"[webhooks]\nmax_body_bytes = {MAX_BODY_BYTES}\n")
            daemon = Daemon(home, config, environment={"CREDENTIALS_DIRECTORY": str(home / "credentials")})
            async with living(daemon):
                yield World(daemon, terminal)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[World]:
    """Yield a daemon with an acknowledged payment and an accepted print job. No merchant is configured."""
    async with world() as found:
        (deepest,) = (case for case in CASES if case.path == "start-request/metadata-deepest.json")
        request = content(deepest.given["body"])[:-1] + b', "terminal": "%s"}' % TERMINAL.encode()
        put = await found.daemon.call("PUT", f"/transactions/{IDENTITY}", request)
        assert (put.status, put.json["phase"]) == (201, "active")
        again = await found.daemon.call("PUT", f"/transactions/{IDENTITY}", request)
        assert again.status == 200, "the same request again, compared to its deepest level"
        printed = {"terminal": TERMINAL, "document": {"lines": []}}
        assert (await found.daemon.call("PUT", f"/print-jobs/{JOB}", printed)).json["phase"] == "active"
        yield found


class Line:
    """One connection to the listener. The client opens a new connection after the listener closes the connection."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, path: str, body: bytes, method: str = "POST") -> int:
        """Send one request. Return the HTTP status of the reply."""
        if self._open is None:
            self._open = await connect(self._daemon.port, self._daemon.ca)
        reader, writer = self._open
        head = f"{method} {path} HTTP/1.1\r\nhost: posd\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
            assert "content-length: 0\r\n" in answer
        if "connection: close" in answer:
            self.hang_up()
        return int(answer.split(" ")[1])

    def hang_up(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open[1].close()
        self._open = None


async def replies(daemon: Daemon, cases: Sequence[Case], address: str = "") -> dict[str, tuple[int, int]]:
    """Deliver each vector over several connections at once. Return the vectors with an unexpected reply. All vectors
    belong to one payment. posd does not hold so many large bodies of one payment at once. After a 503 the test sends
    the vector again later, as a terminal does (terminal API, Delivery).
    """
    left, wrong, refused = list(reversed(cases)), {}, Counter[str]()

    async def deliver() -> None:
        line = Line(daemon)
        try:
            while left:
                case = left.pop()
                path, method = address or case.given["path"], case.given.get("method", "POST")
                status = await line.send(path, content(case.given["body"]), method)
                if status == 503 and refused[case.path] < MOST_REFUSALS:
                    refused[case.path] += 1
                    left.insert(0, case)
                elif status != case.expect["reply"]:
                    wrong[case.path] = (status, case.expect["reply"])
        finally:
            line.hang_up()

    await asyncio.gather(*(deliver() for _ in range(LINES)))
    return wrong


def of_kind(kind: str) -> list[Case]:
    """Return the vectors of a kind."""
    return [case for case in (*CASES, *FOUND) if case.kind == kind]


def address(channel: Channel, identity: str) -> str:
    """Return a callback address. The vectors of the kind callback-token have the token."""
    return path(channel, identity, token(bytes.fromhex(KEYS[0]), channel, identity))


@pytest.mark.slow
async def test_every_event_gets_its_reply_and_is_kept(started: World) -> None:
    cases = [case for case in of_kind("transaction-event") if not case.given["merchant_id"]]
    assert len(cases) > 400
    assert await replies(started.daemon, cases, address(Channel.TRANSACTION, IDENTITY)) == {}
    with disk(started.daemon) as db:
        kept = {row[0] for row in db.execute("SELECT body FROM events")}
    taken = {case.path: content(case.given["body"]) for case in cases if case.expect["reply"] == 200}
    # posd keeps the first of several forms of an event
    ids = {read_event(body).event_id for body in kept}
    assert [path for path, body in taken.items() if body not in kept and read_event(body).event_id not in ids] == []
    document = await started.daemon.transaction(IDENTITY)
    assert (document["phase"], document["client_transaction_id"]) == ("final", IDENTITY)
    listed = await started.daemon.call("GET", f"/transactions/{IDENTITY}/events")
    assert len(decode(listed.body)["events"]) == len(kept)


async def test_events_of_another_merchant_are_refused_if_a_merchant_is_configured() -> None:
    cases = [case for case in of_kind("transaction-event") if case.given["merchant_id"]]
    assert {case.given["merchant_id"] for case in cases} == {MERCHANT}
    async with world(MERCHANT) as found:
        assert await replies(found.daemon, cases, address(Channel.TRANSACTION, IDENTITY)) == {}


async def test_every_print_webhook_gets_its_reply(started: World) -> None:
    assert await replies(started.daemon, of_kind("print-webhook"), address(Channel.PRINT, JOB)) == {}


async def test_every_address_gets_its_reply(started: World) -> None:
    assert await replies(started.daemon, of_kind("callback-address")) == {}


@pytest.mark.parametrize(
    ("kind", "path"), [("start-request", f"/transactions/{OTHER}"), ("print-request", "/print-jobs/j")]
)
async def test_every_faulty_request_is_refused_with_the_name_of_its_fault(started: World, kind: str, path: str) -> None:
    for case in of_kind(kind):
        problem = case.expect.get("problem")
        if problem is None:
            continue
        reply = await started.daemon.call("PUT", path, content(case.given["body"]))
        told = sorted(fault["path"] for fault in json.loads(reply.body).get("errors", []))
        status = {"malformed_json": 400, "invalid_request": 422}[problem]
        assert (reply.status, reply.json["code"], told) == (status, problem, case.expect.get("paths", [])), case.path


async def test_the_terminal_receives_the_metadata_to_its_deepest_level(started: World) -> None:
    (request,) = started.terminal.requests
    assert b'"metadata":' + b'{"a":' * 64 + b"1" + b"}" * 64 in request.body
