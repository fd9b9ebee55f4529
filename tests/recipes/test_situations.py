"""The recipes for situations at a counter run unchanged."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.client import PaymentStore, StoredPayment
from tests.recipes.counter import Counter, open_counter
from tests.recipes.running import tried
from tests.rig.connections import shut


@asynccontextmanager
async def troubled(socket: Path, code: str, status: int, *calls: str) -> AsyncIterator[str]:
    """Serve the socket for the block. Yield its path. `calls`: beginnings of the request lines to disturb."""
    problem = {"type": f"urn:posd:problem:{code}", "title": code, "status": status, "detail": f"{code}!", "code": code}
    body = json.dumps(problem).encode()
    head = f"HTTP/1.1 {status} Trouble\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
    answer = head.encode() + b"connection: close\r\n\r\n" + body

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:  # the client only checked for a listener
                return
            if request.decode().startswith(calls):
                writer.write(answer)
                return
            within, without = await asyncio.open_unix_connection(socket)
            with closing(without):
                lines = [line for line in request.split(b"\r\n") if not line.lower().startswith(b"connection:")]
                lines.insert(1, b"connection: close")  # the next call then uses another connection
                without.write(b"\r\n".join(lines))
                await asyncio.gather(_copy(reader, without), _copy(within, writer))

    path = socket.parent / "troubled.sock"
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield str(path)
    finally:
        await shut(server)
        path.unlink(missing_ok=True)  # the server removes the socket file from Python 3.13 on


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


APPROVED, DECLINED, LOST_ACKNOWLEDGEMENT, BY_HAND = "9000.01", "9000.04", "9000.20", "9000.09"
A_PART, CANCELED_AT_THE_ACQUIRER = (
    "9000.98",
    "9000.97",
)  # one scenario approves only 50.00, and one scenario cancels after the request to the acquirer
UNHEARD = "9000.67"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest.mark.slow
async def test_a_till_settles_payments_that_a_crash_left_open(counter: Counter) -> None:
    async with counter.recipe("charge.py", APPROVED) as charge:
        await charge.says("Present the card")
        await charge.kill()
    noted(counter, str(uuid4()), "7.77")  # the till crashed before its second call arrived

    async with counter.recipe("after_a_crash.py", GRACE_SECONDS="0") as recipe:
        await recipe.says(f"{APPROVED}: checking")
        await counter.daemon.restart()
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said == [
        f"{APPROVED}: checking",
        "posd is not there yet",
        f"{APPROVED}: PAID",
        "7.77: checking",
        "7.77: NOT PAID: it was never started",
    ]
    await counter.one_request()


def noted(counter: Counter, identity: str, amount: str) -> None:
    """Make the till store a payment that it may have started."""
    body = {"type": "charge", "amount": {"subtotal_iva0": amount}}
    PaymentStore(counter.till / "open-payments").save(StoredPayment(identity, json.dumps(body).encode()))


async def test_a_payment_that_the_till_lost_is_reported(counter: Counter) -> None:
    lost = await counter.hold()
    async with counter.recipe("after_a_crash.py") as recipe:
        assert await recipe.ended() == 4
    assert lost in recipe.said[-1]
    await counter.let_go(lost)


@pytest.mark.slow
async def test_the_second_till_waits_for_its_turn(counter: Counter) -> None:
    first, second = await counter.hold(metadata={"till": "till 1"}), str(uuid4())
    async with counter.recipe("two_tills.py", second, "till 2", "12.50") as recipe:
        await recipe.says("busy with till 1")
        await counter.let_go(first)
        await counter.terminal.ledger.wait_for("start", client_transaction_id=second)
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said[-1] == "PAID 12.50"
    assert counter.requests == [first, second]

    async with counter.recipe("two_tills.py", second, "till 2", "12.50") as recipe:  # the sale stays paid
        assert await recipe.ended() == 0
    assert counter.requests == [first, second]

    async with counter.recipe("two_tills.py", second, "till 2", "13.50") as recipe:
        assert await recipe.ended() == 4
    assert recipe.said[-1].startswith("CALL THE SUPERVISOR")


@pytest.mark.slow
async def test_two_cards_pay_one_sale(counter: Counter) -> None:
    sale = f"sale-{uuid4()}"
    arguments = ("split_payment.py", sale, "9010.14", "10.10", DECLINED)
    async with counter.recipe(*arguments) as recipe:
        await counter.starts(1)
        await recipe.kill()  # the till crashes while the first card pays
    async with counter.recipe(*arguments) as recipe:
        await counter.pass_time()
        await recipe.says("part 1, 10.10: PAID, 9000.04 left")
        await counter.starts(2)
        await counter.pass_time()
        assert await recipe.ended() == 6
    assert recipe.said[-1] == f"part 2, {DECLINED}: NOT PAID: declined"

    counter.terminal.terminal.arm("approve-contactless")  # another card
    async with counter.recipe(*arguments) as recipe:
        await counter.starts(3)
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said == ["part 1, 10.10: PAID, 9000.04 left", f"part 2, {DECLINED}: PAID, 0.00 left"]
    counter.terminal.terminal.arm(None)
    assert len(counter.requests) == len(set(counter.requests)) == 3

    elsewhere = counter.directory / "elsewhere"
    elsewhere.mkdir()
    async with counter.recipe("split_payment.py", sale, "1.00", "1.00", TILL_DIR=str(elsewhere)) as recipe:
        assert await recipe.ended() == 3  # this till does not know that the sale is paid
    assert recipe.said[-1].startswith("part 1, 1.00: NOT PAID: ")
    assert len(counter.requests) == 3


async def test_a_tip_added_by_the_first_card_does_not_pay_the_sale(programs: Path) -> None:
    async with open_counter(programs, "SN-1", tip=Decimal(2)) as counter:
        counter.fresh()
        async with counter.recipe("split_payment.py", f"sale-{uuid4()}", "20.00", "10.00", "10.00") as recipe:
            for part in (1, 2):
                await counter.starts(part)
                await counter.pass_time()
            assert await recipe.ended() == 0
        assert recipe.said == ["part 1, 10.00: PAID, 10.00 left", "part 2, 10.00: PAID, 0.00 left"]


#: Recipe -> arguments for one payment.
OF_ONE_PAYMENT = {"abort_button.py": ("{id}", "{amount}"), "two_tills.py": ("{id}", "till 1", "{amount}")}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("amount", "code", "words"),
    [(A_PART, 6, "PAID 5000.00 of 9000.98"), (CANCELED_AT_THE_ACQUIRER, 4, "CALL THE SUPERVISOR: ")],
)
@pytest.mark.parametrize("name", OF_ONE_PAYMENT)
async def test_an_unclear_end_is_shown_neither_as_paid_nor_as_not_paid(
    counter: Counter, name: str, amount: str, code: int, words: str
) -> None:
    arguments = [argument.format(id=uuid4(), amount=amount) for argument in OF_ONE_PAYMENT[name]]
    async with counter.recipe(name, *arguments) as recipe:
        await counter.starts(1)
        await counter.pass_time()
        assert await recipe.ended() == code
    assert recipe.said[-1].startswith(words)


@pytest.mark.slow  # the client repeats its call for 15 seconds
async def test_the_abort_button_survives_a_stop_of_posd(counter: Counter) -> None:
    identity = str(uuid4())
    async with counter.recipe("abort_button.py", identity, APPROVED) as recipe:
        await recipe.says("press Enter")
        await counter.daemon.kill()
        recipe.type("")
        await recipe.says("It cannot be canceled: ")
        await counter.daemon.start()
        recipe.type("")
        await recipe.says("Canceling")
        await counter.pass_time()
        assert await recipe.ended() == 3
    assert recipe.said[-1] == "NOT PAID: canceled"


async def test_the_abort_button_aborts(counter: Counter) -> None:
    async with counter.recipe("abort_button.py", str(uuid4()), APPROVED) as recipe:
        await recipe.says("press Enter")
        recipe.type("")
        await recipe.says("Canceling")
        await counter.pass_time()
        assert await recipe.ended() == 3
    assert recipe.said[-1] == "NOT PAID: canceled"
    await counter.one_request()


async def test_the_last_sale_is_voided_once(counter: Counter) -> None:
    await counter.pay("3.00")
    sale = await counter.pay("12.50")
    async with counter.recipe("void_last.py") as recipe:
        await counter.starts(3)
        await recipe.kill()
    async with counter.recipe("void_last.py") as recipe:  # the till finishes the payment that it began
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said == ["GIVEN BACK 12.50: cancellation"]
    assert len(counter.requests) == 3
    assert (await counter.daemon.transaction(counter.requests[-1]))["original"] == sale

    async with counter.recipe("void_last.py") as recipe:
        assert await recipe.ended() == 3
    assert recipe.said[-1].startswith("NOT GIVEN BACK")
    assert len(counter.requests) == 3


ENDS = {
    APPROVED: (0, f"PAID {APPROVED}", f"PAGADO {APPROVED}"),
    **dict.fromkeys((DECLINED, "9000.05", "9000.07", "9000.34"), (3, "NOT PAID", "NO PAGADO")),
}


LIVE = ("live_status.py", "live_status.mjs")
in_each_language = pytest.mark.parametrize("name", tried(LIVE, quick=["live_status.py"]))


@pytest.mark.quick(2)
@in_each_language
@pytest.mark.parametrize("amount", ENDS)
async def test_the_cashier_sees_each_end(counter: Counter, name: str, amount: str) -> None:
    identity, (code, english, spanish) = await counter.start(amount), ENDS[amount]
    await counter.pass_time()
    await counter.daemon.outcome(identity)
    async with counter.recipe(name, identity) as recipe:
        assert await recipe.ended() == code
    if name.endswith(".mjs"):
        assert recipe.said[-1].startswith(english)
        return
    assert recipe.said[-1] == english
    async with counter.recipe(name, identity, "es") as recipe:
        assert await recipe.ended() == code
    assert recipe.said[-1] == spanish


@in_each_language
async def test_the_cashier_sees_each_step_once_despite_a_restart(counter: Counter, name: str) -> None:
    identity = await counter.start(BY_HAND)
    async with counter.recipe(name, identity) as recipe:
        await counter.pass_time()
        await recipe.says("Present the card")
        await counter.daemon.kill()
        await recipe.says("One moment")
        await counter.daemon.start()
        assert counter.terminal.terminal.hand("present-card")
        await counter.pass_time()
        await recipe.says("Asking the bank")
        assert counter.terminal.terminal.hand("approve")
        await counter.pass_time()
        assert await recipe.ended() == 0
    # The text of a read card appears only for a moment, so the test compares the other texts.
    english = [line.partition(" / ")[0] for line in recipe.said if not line.startswith(("One moment", "Card read"))]
    assert [line.removesuffix(", please wait") for line in english] == [
        "Present the card",
        "Asking the bank",
        f"PAID {BY_HAND}",
    ]
    await counter.one_request()


async def test_the_cashier_sees_doubt_and_its_end(counter: Counter) -> None:
    identity = await counter.start(LOST_ACKNOWLEDGEMENT)
    async with counter.recipe("live_status.py", identity, "es") as recipe:
        await recipe.says("No cobre otra vez")
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said[-1] == "PAGADO 9000.20"
    await counter.one_request()


@pytest.mark.slow
async def test_a_receipt_is_printed_once_and_copied_on_request(counter: Counter) -> None:
    identity = await counter.pay("12.50")
    printed = counter.terminal.ledger.next(lambda entry: entry["kind"] == "print")
    async with counter.recipe("print_receipt.py", identity) as recipe:
        async with asyncio.timeout(60):
            await printed
        await recipe.kill()
    async with counter.recipe("print_receipt.py", identity) as recipe:  # the till finishes the payment that it began
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said == ["PRINTED"]
    assert len(prints_of(counter, identity)) == 1
    assert "12.50" in prints_of(counter, identity)[0]["document"]["text"]

    printed = counter.terminal.ledger.next(lambda entry: entry["kind"] == "print")
    async with counter.recipe("print_receipt.py", identity) as recipe:
        async with asyncio.timeout(60):
            await printed
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert len(prints_of(counter, identity)) == 2
    jobs = (await counter.daemon.call("GET", "/print-jobs?limit=2")).json["print_jobs"]
    assert [job["reprint_of"] for job in jobs] == [f"receipt-{identity}-1", None]


@pytest.mark.slow
async def test_an_unpaid_sale_has_no_receipt(counter: Counter) -> None:
    identity = await counter.pay(DECLINED, "declined")
    async with counter.recipe("print_receipt.py", identity) as recipe:
        assert await recipe.ended() == 3
    assert prints_of(counter, identity) == []


def prints_of(counter: Counter, identity: str) -> list[Any]:
    """Return the received print requests for a payment's receipts."""
    bodies = [json.loads(text) for text in counter.terminal.printer.requests if identity in text]
    return [body for body in bodies if body["printJobId"].startswith(f"receipt-{identity}")]


async def test_an_unclear_payment_has_no_receipt(counter: Counter) -> None:
    identity = await counter.pay("9000.93")  # the payment is canceled after its approval
    async with counter.recipe("print_receipt.py", identity) as recipe:
        assert await recipe.ended() == 4
    assert recipe.said[-1].startswith("CALL THE SUPERVISOR: ")
    assert prints_of(counter, identity) == []


@pytest.mark.slow
async def test_a_receipt_has_the_amount_even_if_the_terminal_does_not_report_it(counter: Counter) -> None:
    identity = await counter.start(UNHEARD)
    await counter.decide(identity, "resolve", result="approved")
    assert (await counter.daemon.outcome(identity))["authorized_amount"] is None
    await counter.pass_time()
    async with counter.recipe("print_receipt.py", identity) as recipe:
        async with asyncio.timeout(60):
            await counter.terminal.ledger.next(lambda entry: entry["kind"] == "print")
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert UNHEARD in prints_of(counter, identity)[0]["document"]["text"]


@pytest.mark.slow
async def test_a_fault_of_posd_during_printing_prints_nothing_twice(counter: Counter) -> None:
    identity = await counter.pay("12.50")
    path = f"/v1/print-jobs/receipt-{identity}-1/outcome"
    printed = counter.terminal.ledger.next(lambda entry: entry["kind"] == "print")
    async with (
        troubled(counter.daemon.till_socket, "internal_error", 500, f"GET {path}") as socket,
        counter.recipe("print_receipt.py", identity, POSD_SOCKET=socket) as recipe,
    ):
        async with asyncio.timeout(60):
            await printed
        assert await recipe.ended() == 4
    await counter.pass_time()
    async with counter.recipe("print_receipt.py", identity) as recipe:
        assert await recipe.ended() == 0
    assert len(prints_of(counter, identity)) == 1


@in_each_language
async def test_the_approved_amount_is_shown(counter: Counter, name: str) -> None:
    identity = await counter.pay(A_PART)
    async with counter.recipe(name, identity) as recipe:
        assert await recipe.ended() == 0
    assert recipe.said[-1].startswith("PAID 5000")


@pytest.mark.parametrize(
    ("name", "code", "status", "words"),
    [
        *tried(LIVE[1:], LIVE, "forbidden", 403, "CALL THE SUPERVISOR: forbidden!"),
        *tried(LIVE[1:], (), "internal_error", 500, "One moment"),
    ],
)
async def test_a_refusal_ends_the_stream_and_a_fault_is_reported(
    counter: Counter, name: str, code: str, status: int, words: str
) -> None:
    async with (
        troubled(counter.daemon.till_socket, code, status, "GET") as socket,
        counter.recipe(name, str(uuid4()), POSD_SOCKET=socket) as recipe,
    ):
        await recipe.says(words)


@in_each_language
async def test_an_unknown_payment_is_not_shown_as_unpaid(counter: Counter, name: str) -> None:
    async with counter.recipe(name, str(uuid4())) as recipe:
        assert await recipe.ended() == 4
    assert recipe.said[-1].startswith("CALL THE SUPERVISOR")
