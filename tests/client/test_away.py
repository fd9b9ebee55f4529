"""Messages and waits of the client. posd is missing, forbidden, stopping, or replaced by another program."""

import asyncio
import errno
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from posd.client import (
    Approved,
    AsyncPosd,
    Change,
    ForeignAnswer,
    Outcome,
    OutcomeUnknown,
    Posd,
    Problem,
    State,
    StillOpen,
    StillPrinting,
    Unreachable,
    connection,
)
from tests.rig.documents import AT, COMPLETED, ID, JOB, answer, outcome, outcome_of, print_job, transaction
from tests.rig.needs import needs
from tests.rig.stub import Answer, Stub, problem

LOST = Answer(cut=True)
STOPPING = problem(503, "draining", "stopping")
FULL = problem(503, "storage_unavailable", "the disk is full")
FAULT = problem(500, "internal_error", "a fault")
FOREIGN = Answer(200, b"<html>", "text/html")
APPROVED = transaction(outcome=outcome("approved", {"kind": "event"}), next_step="done")
OVER = answer(outcome_of(APPROVED))
OPEN = answer(transaction(phase="active"), 202)


def sync(script: list[Answer], path: Path, use: Callable[[Posd], object]) -> object:
    with Stub(path, script) as stub, Posd(stub.socket) as client:
        return use(client)


# Reasons why a socket cannot be opened.


def listening(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    return bound


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "there is no such socket: is posd running"),
        ("dead", "no process listens on it: posd is not running"),
        ("file", "no process listens on it|wrong type"),
        ("x" * 200, "too long for a Unix socket"),
    ],
    ids=["none", "dead", "file", "long"],
)
async def test_the_message_says_why_posd_cannot_be_reached(tmp_path: Path, name: str, words: str) -> None:
    listening(tmp_path / "dead").close()
    (tmp_path / "file").write_text("")
    with Posd(tmp_path / name, patience=0) as client, pytest.raises(Unreachable, match=words) as caught:
        client.version()
    async with AsyncPosd(tmp_path / name, patience=0) as asynchronous:
        with pytest.raises(Unreachable, match=words):
            await asynchronous.version()
    assert not caught.value.sent
    gc.collect()  # a socket that is left open causes a warning, and warnings are errors in tests


@pytest.mark.slow
@needs(root=True)
def test_a_forbidden_socket_is_not_waited_for_long(tmp_path: Path) -> None:
    """The client waits for a moment. At posd's start the socket exists before it gets its group."""
    path = Path("/tmp") / f"posd-{os.getpid()}.sock"
    program = f"""
import os
from posd.client import Posd, Unreachable
tries = []
client = Posd({str(path)!r}, patience=3600, on_away=tries.append)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    client.version()
except Unreachable as error:
    print(len(tries) > 0, error.lasting, error)
"""
    bound = listening(path)
    try:
        path.chmod(0o600)
        bound.listen()
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        bound.close()
        path.unlink()
    assert done.stderr == ""
    assert done.stdout.startswith("True True cannot reach posd")
    assert "join the socket's group" in done.stdout


def test_a_socket_with_a_full_queue_still_counts_as_reachable(tmp_path: Path) -> None:
    with listening(tmp_path / "s") as busy:
        busy.listen(0)
        waiting = []
        while True:  # the loop ends when the next connection would have to wait
            one = socket.socket(socket.AF_UNIX)
            waiting.append(one)
            one.setblocking(False)
            if one.connect_ex(str(tmp_path / "s")) == errno.EAGAIN:
                break
        connection.probe(str(tmp_path / "s"))
        for one in waiting:
            one.close()


def test_the_socket_comes_from_the_argument_or_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSD_SOCKET", "/elsewhere")
    with Posd() as client, Posd("/given") as other:
        assert (client.socket, other.socket) == ("/elsewhere", "/given")
    monkeypatch.delenv("POSD_SOCKET")
    with Posd() as client:
        assert client.socket == "/run/posd/till.sock"


# Waits continue after every temporary fault.


@pytest.mark.quick(1)
@pytest.mark.parametrize("trouble", [LOST, STOPPING, FULL, FAULT], ids=["lost", "draining", "full", "fault"])
def test_a_wait_continues_over_temporary_faults(tmp_path: Path, trouble: Answer) -> None:
    script = [trouble, trouble, OVER]
    assert isinstance(sync(script, tmp_path / "s", lambda client: client.transaction(ID).outcome()), Approved)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (problem(404, "not_found", "no such payment"), OutcomeUnknown),
        (problem(409, "of_a_newer_posd", "odd"), OutcomeUnknown),
        (FOREIGN, ForeignAnswer),
        (Answer(404, b"nothing here", "text/plain"), ForeignAnswer),
        (Answer(200, b'{"phase":"final"}'), ForeignAnswer),
    ],
    ids=["not found", "unknown", "foreign", "foreign 404", "incomplete document"],
)
def test_a_wait_ends_at_a_permanent_fault(tmp_path: Path, refusal: Answer, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        sync([refusal, refusal], tmp_path / "s", lambda client: client.transaction(ID).outcome())


@pytest.mark.slow
def test_a_permanent_fault_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OutcomeUnknown) as told:
        sync([FAULT] * 50, tmp_path / "s", lambda client: client.transaction(ID).outcome())
    assert (told.value.problem.code, told.value.never_started) == ("internal_error", False)


def test_the_result_of_a_removed_payment_is_returned(tmp_path: Path) -> None:
    pruned = problem(410, "pruned", "it ended approved", ',"result":"approved"')
    with pytest.raises(OutcomeUnknown, match=r"it ended approved$") as told:
        sync([pruned], tmp_path / "s", lambda client: client.transaction(ID).outcome())
    assert told.value.extra == {"result": "approved"}


# A client repeats a read during its patience. A client does not repeat a decision.


@pytest.mark.parametrize("trouble", [LOST, STOPPING], ids=["lost", "draining"])
def test_a_call_that_only_reads_is_repeated(tmp_path: Path, trouble: Answer) -> None:
    script = [trouble, answer({"version": "1", "api": "v1", "schema": 3})]
    assert sync(script, tmp_path / "s", lambda client: client.version().schema) == 3


def test_an_unreadable_database_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="disk"):
        sync([FULL], tmp_path / "s", lambda client: list(client.transactions()))


def test_a_decision_of_a_person_is_not_sent_twice(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [LOST]) as stub, Posd(stub.socket) as client, pytest.raises(Unreachable) as caught:
        client.transaction(ID).release("Ana", "why")
    assert (caught.value.sent, len(stub.calls)) == (True, 1)


def test_a_decision_that_posd_did_not_accept_is_repeated(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [STOPPING, answer(transaction())]) as stub, Posd(stub.socket) as client:
        lost = {"terminal": "SN-1", "amount": {"subtotal_iva0": "5.00"}}
        client.transaction(ID).resolve("approved", "Ana", "slip", transaction_reference="r", lost=lost)
    body = '{"result":"approved","operator":"Ana","note":"slip","transaction_reference":"r",'
    body += '"terminal":"SN-1","amount":{"subtotal_iva0":"5.00"}}'
    assert [(call.path, call.body.decode()) for call in stub.calls] == [(f"/v1/transactions/{ID}/resolve", body)] * 2


# The time-out belongs to the caller.


@pytest.mark.parametrize("timeout", [0, 0.3])
def test_a_time_out_leaves_the_payment_open_and_reports_its_state(tmp_path: Path, timeout: float) -> None:
    with (
        Stub(tmp_path / "s", [OPEN] * 1000) as stub,
        Posd(stub.socket) as client,
        pytest.raises(StillOpen, match="do not pay again under another id") as caught,
    ):
        client.transaction(ID).outcome(timeout=timeout)
    assert caught.value.state is not None
    assert caught.value.state.phase == "active"
    assert stub.calls[0].path.endswith(f"?timeout={timeout:.3f}")
    assert {call.method for call in stub.calls} == {"GET"}


def test_a_time_out_ends_the_wait_while_posd_is_away(tmp_path: Path) -> None:
    began = time.monotonic()
    with Posd(tmp_path / "none") as client, pytest.raises(StillOpen) as caught:
        client.transaction(ID).outcome(timeout=0.6)
    assert time.monotonic() - began >= 0.6
    assert caught.value.state is None


@pytest.mark.slow
def test_a_hanging_posd_does_not_block_a_caller_with_a_time_out(tmp_path: Path) -> None:
    release = threading.Event()
    hangs = Answer(200, b"{}", before=release.wait)
    with Stub(tmp_path / "s", [hangs] * 5) as stub, Posd(stub.socket) as client:
        try:
            with pytest.raises(StillOpen):
                client.transaction(ID).outcome(timeout=0.2)
        finally:
            release.set()


def test_a_wait_for_a_print_job_continues_and_times_out_as_for_a_payment(tmp_path: Path) -> None:
    script = [LOST, FULL, answer(print_job(), 202), answer(COMPLETED)]
    assert sync(script, tmp_path / "s", lambda client: client.printed(JOB).outcome().printed) is True
    with pytest.raises(StillPrinting, match="continues"):
        sync([answer(print_job(), 202)], tmp_path / "s2", lambda client: client.printed(JOB).outcome(timeout=0))


# Streams.


def sse(*items: tuple[int | None, str, str]) -> Answer:
    text = "".join((f"id: {seq}\n" if seq else "") + f"event: {name}\ndata: {data}\n\n" for seq, name, data in items)
    return Answer(200, f": heartbeat\n\n{text}".encode(), "text/event-stream")


def event(seq: int) -> tuple[int, str, str]:
    return seq, "X", f'{{"seq":{seq},"received_at":"{AT}","verdict":"applied","event":{{"status":"S{seq}"}}}}'


def state(code: str, next_step: str = "wait") -> tuple[None, str, str]:
    display = f'"display":{{"code":"{code}","text":"words"}},"missing_proof":[],"attention":[]'
    return None, "state", f'{{"phase":"active","next_step":"{next_step}",{display}}}'


END = (None, "outcome", "{}")
STREAMS = [
    # the stream ends without an outcome
    sse(state("present_card"), event(3), state("present_card"), event(5), state("card_read")),
    LOST,
    STOPPING,
    sse(
        state("card_read"),
        event(5),
        event(7),
        (None, "cut_off", '{"why":"too slow"}'),
        (None, "of_a_newer_posd", ""),
        (None, "notice", '{"code":"changes_removed","detail":"d","seq":100}'),
    ),
    sse(state("card_read"), state("call_supervisor", "ask_person"), event(8), END),
    OVER,
]


def test_a_broken_stream_is_resumed_without_repeated_messages(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", list(STREAMS)) as stub, Posd(stub.socket) as client:
        check(stub, list(client.transaction(ID).watch()))


async def test_a_broken_async_stream_is_resumed_without_repeated_messages(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", list(STREAMS)) as stub:
        async with AsyncPosd(stub.socket) as client:
            seen = [change async for change in client.transaction(ID).watch()]
        check(stub, seen)


def check(stub: Stub, seen: list[Change | State | Outcome]) -> None:
    *changes, last = seen
    assert [(item.seq, item.status) for item in changes if isinstance(item, Change)] == [
        (3, "S3"),
        (5, "S5"),
        (7, "S7"),
        (8, "S8"),
    ]
    assert [(item.display.code, item.next_step) for item in changes if isinstance(item, State)] == [
        ("present_card", "wait"),
        ("card_read", "wait"),
        ("call_supervisor", "ask_person"),
    ]
    assert isinstance(last, Approved)
    opened = [call.headers.get("last-event-id") for call in stub.calls if call.path.endswith("/events")]
    assert opened == [None, "5", "5", "5", "7"]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(404, "not_found", "no"), OutcomeUnknown),
        (FOREIGN, ForeignAnswer),
        (answer({"events": []}), ForeignAnswer),
        (sse((1, "X", "no json")), ForeignAnswer),
        (sse((1, "X", '{"seq":1}')), ForeignAnswer),
        (sse((None, "state", '{"phase":"active"}')), ForeignAnswer),
    ],
    ids=["problem", "foreign", "no stream", "invalid JSON", "incomplete event", "incomplete state"],
)
def test_a_response_that_is_not_a_stream_is_reported(tmp_path: Path, reply: Answer, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        sync([reply], tmp_path / "s", lambda client: list(client.transaction(ID).watch()))
    with pytest.raises(kind):
        asyncio.run(first(tmp_path / "s2", reply))


async def first(path: Path, reply: Answer) -> None:
    with Stub(path, [reply]) as stub:
        async with AsyncPosd(stub.socket) as client:
            async for _ in client.transaction(ID).watch():
                pass


def test_all_messages_after_a_change_of_the_database_are_passed_on(tmp_path: Path) -> None:
    """The other database has other numbers. A number below the last number does not count as already received."""
    unknown = (None, "notice", '{"code":"place_unknown","detail":"d","seq":0}')
    script = [sse(event(8), event(9)), sse(unknown, event(1), event(2)), sse(event(3), END), OVER]
    with Stub(tmp_path / "s", script) as stub, Posd(stub.socket) as client:
        *changes, _ = client.transaction(ID).watch()
    assert [item.seq for item in changes if isinstance(item, Change)] == [8, 9, 1, 2, 3]
    assert [call.headers.get("last-event-id") for call in stub.calls[:3]] == [None, "9", "2"]
