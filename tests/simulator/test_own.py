"""Scenario files of a user's own: what each key does to the wire, to the ledger and to what a search finds."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import CHARGE, PATIENCE, Stage, Till, request
from tests.simulator.own import APPROVED, CANCELED, NO, OK, REJECTED, WAITS, A, C, Q, step, steps, write
from tests.support.tables import every

UUID = "7f3cabcd-0000-4000-8000-00000000000f"
PAGE = "<html><h1>502 Bad Gateway</h1></html>"
HTML = f'body = "{PAGE}"\ncontent_type = "text/html"\n'
FAILED = '{ type = "ACQUIRER", code = "51", message = "Insufficient funds" }'
STRIPE = step(C, reading_type='"MAGNETIC_STRIPE"')
#: What stands for a member that is not there, and for a connection that was closed without a whole answer.
GONE, LOST = "(gone)", "(lost)"
SWITCHES = ("unplugged", "plugged", "power_off", "power_on", "moved")
ABORTED = {"code": "ABORTED", "message": "the payment is being canceled"}


def at(document: Any, path: str) -> Any:
    """Return a member by its path, such as `terminal.model` or `0.status`."""
    for name in path.split("."):
        try:
            document = document[int(name) if isinstance(document, list) else name]
        except (KeyError, IndexError):
            return GONE
    return document


@dataclass
class Wire:
    """A scenario, and what is seen of it: events as they come, answers by their members or as a text, finals."""

    text: str
    states: list[str]
    finals: list[tuple[str, bool]]
    start: Any = field(default_factory=lambda: {"status": A})
    start_status: int | None = 200
    #: Of the answer to an abort after so many seconds.
    abort_at: float | None = None
    abort: Any = LOST
    abort_status: int | None = 200
    effect: str | None = "cancels"
    #: Of all events, of the last one, and of what a search answers in the end.
    events: dict[str, list[Any]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    found: Any = field(default_factory=dict)
    search_status: int = 200
    forgotten: list[str | None] = field(default_factory=list)
    #: What happened to the terminal itself.
    switched: list[str] = field(default_factory=list)
    #: How many ids the events have: each its own, unless told otherwise.
    ids: int | None = None


def approved(text: str, **seen: Any) -> Wire:
    return Wire(text + APPROVED, [A, C, Q, OK], [(OK, True)], **seen)


def deed(name: str, **fields: str) -> str:
    return step(do=f'"{name}"', **fields)


def aborted(text: str, *, canceled: bool = True, effect: str = "", **seen: Any) -> Wire:
    states, finals = ([A, CANCELED], [(CANCELED, False)]) if canceled else ([A, C, Q, OK], [(OK, True)])
    course = f"[abort]\n{text}\n" + step(A) + step(C, after="10") + steps(Q, OK)
    effect = effect or ("cancels" if canceled else "ignored")
    return Wire(course, states, finals, abort_at=1.5, effect=effect, **seen)


#: Members of what a search finds in the shape `raw-response`.
RAW = {"0.terminal.model": "SIM-1", "0.client_transaction_id": UUID, "0.status": GONE, "0.raw_response": GONE}

WIRES: dict[str, Wire] = {
    # how the start is answered
    "an error, and the payment runs": approved(f"[start]\nstatus = 502\n{HTML}", start=PAGE, start_status=502),
    "an answer that is lost": approved('[start]\nfault = "lost"\n', start=LOST, start_status=None),
    "an answer that breaks off": approved('[start]\nfault = "cut"\n', start=LOST),
    "other members": approved(
        '[start]\nset = { "terminal.serialNumber" = "SN-9999", new = [1, 2.5] }\n'
        'remove = ["operation.client_transaction_id", "previous_status"]\n',
        start={
            "terminal.serialNumber": "SN-9999",
            "new": [1, 2.5],
            "operation.client_transaction_id": GONE,
            "operation.type": "charge",
            "previous_status": GONE,
        },
    ),
    **{
        f"refused {status}": Wire(
            f"[start]\nstatus = {status}\nruns = false\n" + APPROVED,
            *([], []),
            start={"code": f"HTTP_{status}"},
            start_status=status,
            found={"0": GONE},
        )
        for status in (400, 401, 409, 422, 500, 599)
    },
    # what is told of a state, and what is true
    "reading types and failures stand from their step on": Wire(
        step(A) + step(C, reading_type='"CHIP"') + step(C) + STRIPE + step(Q) + step(NO, failure=FAILED),
        [A, C, C, C, Q, NO],
        [(NO, False)],
        events={"reading_type": [GONE, "CHIP", "CHIP", *["MAGNETIC_STRIPE"] * 3]},
        last={"failure_reason": {"type": "ACQUIRER", "code": "51", "message": "Insufficient funds"}},
    ),
    "an event with other members than what is true": Wire(
        steps(A, C, Q)
        + step(
            OK,
            set='{ "terminal.serial_number" = "SN-9999", "raw_response.authorized_amount" = 0.5 }',
            remove='["merchant_id"]',
        ),
        [A, C, Q, OK],
        [(OK, True)],
        last={"terminal.serial_number": "SN-9999", "raw_response.authorized_amount": 0.5, "merchant_id": GONE},
        found={
            "0.terminal.serial_number": "SN-0001",
            "0.raw_response.authorized_amount": 5,
            "0.merchant_id": "MERCHANT-0001",
        },
    ),
    "another amount than was asked for": Wire(
        steps(A, C, Q) + step(OK, authorized_amount='"2.50"'),
        [A, C, Q, OK],
        [(OK, True)],
        last={"raw_response.authorized_amount": 2.5},
        found={"0.raw_response.authorized_amount": 2.5},
    ),
    "a state that is not published": Wire(
        step(A) + step("PIN_REQUESTED") + steps(Q, OK),
        [A, "PIN_REQUESTED", Q, OK],
        [(OK, True)],
        events={"previous_status": [GONE, A, "PIN_REQUESTED", Q]},
    ),
    "the event before once more as a new one": Wire(
        APPROVED + step(OK, restates="true"), [A, C, Q, OK, OK], [(OK, True)], last={"previous_status": Q}
    ),
    "an event that is not told": Wire(
        step(A) + step(C, deliver="{ never = true }") + steps(Q, OK),
        [A, Q, OK],
        [(OK, True)],
        events={"previous_status": [GONE, C, Q]},
    ),
    "something else in place of an event": Wire(
        steps(A, C, Q) + step(OK, deliver="{ raw = '\"<oops>\"' }"), [A, C, Q, "<oops>"], [(OK, True)], ids=3
    ),
    "an event that is overtaken": Wire(
        step(A) + step(C, deliver="{ late = 500 }") + steps(Q, OK), [A, Q, OK, C], [(OK, True)]
    ),
    "an event that comes again": Wire(
        step(A) + step(C, deliver="{ again = [300, 600] }") + steps(Q, OK), [A, C, Q, OK, C, C], [(OK, True)], ids=4
    ),
    "an event with the id of the one before": Wire(
        steps(A, C) + step(Q, same_event_id="true") + step(OK), [A, C, Q, OK], [(OK, True)], ids=3
    ),
    "a receiver that is not trusted": Wire(
        step(A, deliver="{ distrusted = true }") + steps(CANCELED), [CANCELED], [(CANCELED, False)]
    ),
    "two finals, of which a search tells the newest": Wire(
        steps(A, C, CANCELED, OK), [A, C, CANCELED, OK], [(CANCELED, False), (OK, True)], found={"0.status": OK}
    ),
    "two approvals are two charges": Wire(APPROVED + step(OK), [A, C, Q, OK, OK], [(OK, True)] * 2),
    "no end": Wire(steps(A, C), [A, C], [], forgotten=[C], found={"0": GONE}),
    "no steps": Wire("steps = []\n", [], [], forgotten=[None], found={"0": GONE}),
    "a refusal at the limit of the wait": Wire(
        steps(A) + step(REJECTED, after='"limit"', failure=FAILED), [A, REJECTED], [(REJECTED, False)]
    ),
    # what happens to the terminal itself
    "no network for a time": Wire(
        step(A) + deed("unplug") + steps(C, Q, OK) + deed("plug", after="60"),
        [A, C, Q, OK],
        [(OK, True)],
        switched=["unplugged", "plugged"],
    ),
    **{
        f"a power cut after {len(entered)} states, and no step follows": Wire(
            steps(*entered) + deed("power-cycle", seconds="30"),
            list(entered),
            [],
            forgotten=[entered[-1] if entered else None],
            found={"0": GONE},
            switched=["power_off", "power_on"],
        )
        for entered in ((), (A,), (A, C), (A, C, Q))
    },
    "a power cut that the payment outlives": Wire(
        steps(A, C) + deed("power-cycle", seconds="30") + steps(Q, OK),
        [A, C, Q, OK],
        [(OK, True)],
        events={"previous_status": [GONE, A, C, Q]},
        switched=["power_off", "power_on"],
    ),
    "another address": Wire(step(A) + deed("move") + steps(C, Q, OK), [A, C, Q, OK], [(OK, True)], switched=["moved"]),
    # what a search finds, and how it is answered
    "a search that finds an approval where there was none": Wire(
        '[search]\nfinds = "contradiction"\n' + steps(A, CANCELED),
        [A, CANCELED],
        [(CANCELED, False)],
        found={"0.status": OK, "0.raw_response.authorized_amount": 5},
    ),
    "a search that is refused": approved(
        "[search]\nstatus = 404\n", found={"code": "HTTP_404", "message": "Not Found"}, search_status=404
    ),
    "a search that is answered by a page": approved(f"[search]\nstatus = 200\n{HTML}", found=PAGE),
    "a search that is lost": approved('[search]\nfault = "lost"\n', found=LOST),
    "a search that breaks off": approved('[search]\nfault = "cut"\n', found=LOST),
    "an event with other members that is found": approved(
        '[search]\nset = { "terminal.serial_number" = "SN-9999" }\nremove = ["raw_response"]\n',
        found={"0.terminal.serial_number": "SN-9999", "0.terminal.model": "SIM-1", "0.raw_response": GONE},
    ),
    "a page of events": approved(
        '[search]\nshape = "paged"\n', found={"data.0.status": OK, "data.1": GONE, "total": 1, "page": 1, "size": 10}
    ),
    "the acquirer's answers of an approval": approved(
        '[search]\nshape = "raw-response"\n', found=RAW | {"0.approved": True, "0.rawResponse.transaction_status": OK}
    ),
    "the acquirer's answers of a decline": Wire(
        '[search]\nshape = "raw-response"\n' + steps(A, C, Q, NO),
        [A, C, Q, NO],
        [(NO, False)],
        found=RAW | {"0.approved": False, "0.rawResponse.transaction_reference": GONE},
    ),
    # how an abort is answered, and what it does: a terminal can say one and do the other
    "an abort that cancels": aborted('effect = "cancels"', abort=ABORTED),
    "an abort without an effect": aborted('effect = "ignored"', canceled=False, abort=ABORTED),
    "an abort that the card is faster than": aborted('effect = "raced"', canceled=False, effect="raced", abort=ABORTED),
    "an abort that is refused": aborted(
        'status = 409\neffect = "ignored"', canceled=False, abort={"code": "HTTP_409"}, abort_status=409
    ),
    "an error that cancels": aborted("status = 500", abort={"code": "HTTP_500"}, abort_status=500),
    "a cancellation whose answer is lost": aborted('fault = "lost"', abort_status=None),
    "an answer to an abort that breaks off": aborted('fault = "cut"\neffect = "ignored"', canceled=False),
    "an abort that is answered by a page": aborted(HTML, abort=PAGE),
    "an abort with other members": aborted(
        'set = { code = "DONE" }\nremove = ["message"]', abort={"code": "DONE", "message": GONE}
    ),
    "an abort past the point of no return, however it is answered": Wire(
        '[abort]\nstatus = 200\nset = { code = "ABORTED" }\n' + steps(A, C, Q) + step(OK, after="60"),
        [A, C, Q, OK],
        [(OK, True)],
        abort_at=5.0,
        abort={"code": "ABORTED"},
        effect=None,
    ),
    "the card at once, where the abort was there before the first state": Wire(
        '[abort]\neffect = "raced"\n' + step(A, after="50") + step(C, after='"for-ever"') + steps(Q, OK),
        [A, C, Q, OK],
        [(OK, True)],
        abort_at=0.0,
        abort=ABORTED,
        effect="raced",
    ),
}


def check(answer: httpx2.Response | None, expected: Any) -> None:
    if answer is None or not isinstance(expected, dict):
        assert (LOST if answer is None else answer.text) == expected
        return
    assert {path: at(answer.json(), path) for path in expected} == expected


async def got(call: Any) -> httpx2.Response | None:
    """Return the answer to a call, None where the connection breaks before it was whole."""
    try:
        answer: httpx2.Response = await call
    except httpx2.TransportError:
        return None
    return answer


@pytest.mark.quick(12)
@pytest.mark.parametrize("name", WIRES)
async def test_what_a_key_does(stage: Stage, name: str) -> None:
    wire = WIRES[name]
    async with stage.plays(wire.text, virtual=True, wait_seconds=50) as till:
        ledger = till.terminal.ledger
        start = await got(till.charge(client_transaction_id=UUID, events_webhook_url=stage.receiver.url))
        check(start, wire.start)
        assert ledger.of("start")[0]["http_status"] == wire.start_status
        if wire.abort_at is not None:
            await till.advance(wire.abort_at)
            check(await got(till.abort()), wire.abort)
            (line,) = ledger.of("abort")
            assert (line["http_status"], line["effect"]) == (wire.abort_status, wire.effect)
        await till.advance(1000)
        check(found := await got(till.search(UUID)), wire.found)
        assert found is None or found.status_code == wire.search_status
        assert [(final["status"], final["charged"]) for final in ledger.of("final")] == wire.finals
        assert [line["status"] for line in ledger.of("forgotten")] == wire.forgotten
        assert len(ledger.of("over")) == 1
        assert [line["kind"] for line in ledger if line["kind"] in SWITCHES] == wire.switched
    told = [delivery.event for delivery in stage.receiver.deliveries]
    assert [event["status"] if isinstance(event, dict) else event for event in told] == wire.states
    for path, values in wire.events.items():
        assert [at(event, path) for event in told] == values
    assert {path: at(told[-1], path) for path in wire.last} == wire.last
    ids = {event["event_id"] for event in told if isinstance(event, dict)}
    assert len(ids) == (len(told) if wire.ids is None else wire.ids)


STATES = (A, C, Q, OK)
#: What a search finds before the first state, in each of them, and in the end.
FINDS = {
    "usual": [None, None, None, Q, OK],
    "nothing": [None, None, None, None, None],
    "stale": [None, None, A, C, Q],
    "all-states": [None, A, C, Q, OK],
    "another": [None, A, C, Q, OK],
    "contradiction": [None, None, None, Q, NO],
}


@pytest.mark.parametrize(("finds", "expected"), FINDS.items())
async def test_what_a_search_finds(stage: Stage, finds: str, expected: list[str | None]) -> None:
    text = f'[search]\nfinds = "{finds}"\n' + "".join(step(status, after="10") for status in STATES)
    found: list[Any] = []
    async with stage.plays(text, virtual=True) as till:
        await till.charge(client_transaction_id=UUID, events_webhook_url=stage.receiver.url)
        for count in range(len(STATES) + 1):
            await till.advance(0 if count == 0 else 10)
            found.append((await till.search(UUID.upper())).json())
            assert till.terminal.ledger.of("search")[-1]["found"] == len(found[-1])
    assert [events[0]["status"] if events else None for events in found] == expected
    told = {delivery.event["status"]: delivery.event for delivery in stage.receiver.deliveries}
    for event, *_ in filter(None, found):
        if finds == "another":
            assert event["client_transaction_id"] != UUID
            assert event.get("operation", event)["client_transaction_id"] == event["client_transaction_id"]
        elif event["status"] == NO:
            assert event["failure_reason"]["code"] == "05"
            assert event["event_id"] != told[OK]["event_id"]
        else:
            assert event == told[event["status"]]


@pytest.mark.parametrize("call", ["start", "abort", "search"])
async def test_an_answer_can_be_slow_and_the_payment_goes_on_meanwhile(stage: Stage, call: str) -> None:
    async with stage.plays(f"[{call}]\nafter = [20, 21]\n" + steps(A, CANCELED), virtual=True) as till:
        ways = {"start": till.charge, "abort": till.abort, "search": lambda: till.search(UUID)}
        if call != "start":
            await till.charge(client_transaction_id=UUID)
            await till.advance(1.5)
        calling = asyncio.create_task(ways[call]())
        await till.terminal.ledger.wait_for(call)
        await till.advance(19.9)
        assert len(till.terminal.ledger.of("final")) == 1
        assert not calling.done()
        await till.advance(1.2)
        answer = await calling
        assert answer.status_code == 200
        assert call != "search" or answer.json() == []  # what was so when it came


@pytest.mark.parametrize("call", ["start", "abort", "search"])
async def test_only_so_many_calls_of_a_payment_are_answered_so(stage: Stage, call: str) -> None:
    effect = {"start": "runs = false", "abort": 'effect = "ignored"', "search": ""}[call]
    async with stage.plays(f"[{call}]\nstatus = 500\n{effect}\ntimes = 2\n" + WAITS, virtual=True) as till:
        if call != "start":
            await till.charge(client_transaction_id=UUID)
            await till.advance(1.5)
        ways = {
            "start": lambda: till.charge(client_transaction_id=UUID),
            "abort": till.abort,
            "search": lambda: till.search(UUID),
        }
        assert [(await ways[call]()).status_code for _ in range(3)] == [500, 500, 200]
        if call == "start":
            await till.terminal.terminal.stop()
            assert (await till.charge()).status_code == 500  # another payment has its own count


async def test_what_follows_a_final_does_not_hold_the_terminal(stage: Stage) -> None:
    """The next payment runs to its end before the second final of the first one comes."""
    async with stage.plays(steps(A, CANCELED) + step(OK, after="60"), virtual=True) as till:
        await till.charge(client_transaction_id=UUID)
        await till.advance(3)
        assert (await till.abort()).json()["code"] == "NOTHING_RUNNING"
        assert (await till.charge(metadata={"scenario": "cancel-by-cardholder"})).status_code == 200
        await till.advance(30)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [CANCELED, CANCELED]
        await till.advance(60)
        finals = till.terminal.ledger.of("final", client_transaction_id=UUID)
        assert [line["status"] for line in finals] == [CANCELED, OK]


async def test_times_are_the_terminals(stage: Stage) -> None:
    text = step(A, after="2") + step(C, after="[3, 4]") + step(REJECTED, after='"limit"', failure=FAILED)
    async with stage.plays(text, virtual=True, wait_seconds=50) as till:
        await till.charge()
        for seconds, expected in ((1.9, None), (0.2, A), (2.8, A), (1.1, C), (48.9, C)):
            await till.advance(seconds)
            assert (running := till.terminal.terminal.running) is not None
            assert running.status == expected
        await till.advance(1.1)
        assert till.terminal.terminal.running is None


@every("status", [None, A])
async def test_a_terminal_that_is_switched_off_forgets_and_can_go_on(stage: Stage, status: str | None) -> None:
    async with stage.plays(WAITS, virtual=True) as till:
        await till.charge(events_webhook_url=stage.receiver.url)
        await till.advance(0 if status is None else 2)
        await till.terminal.power_off()
        assert [line["status"] for line in till.terminal.ledger.of("forgotten")] == [status]
        assert len(till.terminal.ledger.of("over")) == 1
        await till.terminal.power_on()
        assert (await till.charge()).status_code == 200


@every("plain", [False, True])
async def test_a_certificate_can_be_another_one_from_a_step_on(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, tmp_path: Path, plain: bool
) -> None:
    """Over plain HTTP there is none, and the payment takes its course all the same."""
    file = write(tmp_path, step(A) + deed("certificate", certificate='"self-signed"') + steps(C, Q, OK))
    own = {"certificate": None, "private_key": None} if plain else {}
    async with Simulator(settings(scenario_file=file, **own)) as terminal:
        await Till(terminal, client).charge()
        assert (await terminal.ledger.wait_for("final"))["charged"] is True
        assert [line["which"] for line in terminal.ledger.of("certificate")] == ([] if plain else ["self-signed"])


@contextlib.asynccontextmanager
async def calling(
    till: Till, tls: ssl.SSLContext, **fields: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Start a payment over a connection of one's own."""
    address = httpx2.URL(till.terminal.base_url)
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
    body = json.dumps(request(**fields)).encode()
    head = f"POST {CHARGE} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nothing tells when it does
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("held", ['fault = "silent"', "after = 1e9", 'after_event = "TERMINAL_CANCELED"'])
async def test_an_answer_that_does_not_come_ends_with_its_caller(
    stage: Stage, client_tls: ssl.SSLContext, held: str
) -> None:
    """Nothing is left of the call in the terminal, and the payment runs."""
    async with stage.plays(f"[start]\n{held}\n" + WAITS) as till:
        before = len(asyncio.all_tasks())
        async with calling(till, client_tls, events_webhook_url=stage.receiver.url) as (_, writer):
            line = await till.terminal.ledger.wait_for("start")
            assert line["http_status"] == (None if "silent" in held else 200)
            await till.terminal.ledger.wait_for("attempt")
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) <= before + 1)  # the course of the payment
        assert (await till.abort()).status_code == 200
        assert (await till.terminal.ledger.wait_for("final"))["status"] == "TERMINAL_CANCELED"


@pytest.mark.parametrize("held", ['fault = "silent"', "after = 1e9", 'after_event = "TERMINAL_CANCELED"'])
async def test_a_terminal_whose_callers_wait_stops_all_the_same(stage: Stage, held: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with stage.plays(f"[start]\n{held}\n" + WAITS) as till:
            call = asyncio.create_task(till.charge(events_webhook_url=stage.receiver.url))
            await till.terminal.ledger.wait_for("start")
        with pytest.raises(httpx2.TransportError):
            await call


async def test_the_webhook_can_be_faster_than_the_acknowledgement(stage: Stage) -> None:
    answered: list[bool] = []
    async with stage.plays('[start]\nafter_event = "CARD_PRESENTED"\n' + APPROVED) as till:
        fails = [503, 503]

        def look(event: dict[str, Any]) -> int:
            answered.append(call.done())
            return fails.pop() if event["status"] == "CARD_PRESENTED" and fails else 200

        stage.receiver.answer = look
        call = asyncio.create_task(till.charge(events_webhook_url=stage.receiver.url))
        assert (await call).status_code == 200
        assert answered[:4] == [False] * 4  # the first state, and the second one until it was taken
        kinds = [line["status"] for line in till.terminal.ledger.of("attempt", result=200)]
        assert "CARD_PRESENTED" in kinds
