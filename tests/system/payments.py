"""Checks that follow the pages of docs/guides/operations.md about money at stake on a real machine.

Each page is a check. The check makes the situation of the page on a simulated terminal or on the machine. Then a user
of the group posd-admin types each command of the page unchanged. The check compares output and result with the page and
with the terminals' ledgers. The report has every command and its output.
"""

import datetime
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.system import shop
from tests.system.guide_pages import Page, opened
from tests.system.machine import Machine, until
from tests.system.report import Report

#: Serials of the terminals. A payment without events for minutes has its own terminal.
SERIALS = ONE, TWO, BANK = ("SN-0001", "SN-0002", "SN-0003")
CONTROL = "127.0.0.1:6900"
#: Factor by which people and printers are faster than in a shop. posd's own times are unchanged.
SPEED = "20"
NOTE = "the acquirer was called"
#: Answers to the questions before a decision: the reason and the confirmation.
DECIDED = f"{NOTE}\ny\n"


def run(report: Report, scratch: Path) -> None:
    """Run the part. Each page is a check."""
    with opened(report, scratch) as machine:
        with report.check("three terminals are switched on", needed=True):
            begun = lay_out(machine)
        for heading, follow in PAGES.items():
            with report.check(heading):
                page = Page(heading, machine)
                page.given |= begun
                try:
                    follow(page)
                    page.end(untyped="posd relay" if follow is receipt_says_approved else "")  # the page only names it
                finally:
                    begun |= page.given
                    tidy(machine, set(begun.values()))


def lay_out(machine: Machine) -> dict[str, str]:
    """Connect the terminals, and start the payment that takes minutes. Return the id of the payment."""
    machine.run("systemctl", "stop", "terminal", check=False)
    sections = "".join(
        f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://{shop.ADDRESS}:{6868 + place}"\n'
        for place, serial in enumerate(SERIALS)
        if place
    )
    machine.write(shop.CONFIG, machine.out("cat", shop.CONFIG) + "\n" + sections)
    machine.run("systemctl", "reload", "posd")
    options = ["--terminals", str(len(SERIALS)), "--http", "--listen", f"{shop.ADDRESS}:6868"]
    options += ["--state", "/var/lib/terminals", "--ledger", "/root/ledgers", "--control", CONTROL, "--speed", SPEED]
    options += ["--trust", "/var/lib/posd/tls/ca.crt"]
    machine.run("systemd-run", "--collect", "--unit=terminals", "posd", "simulate", *options)
    asked = ("posd", "terminals", "--json")
    reached = re.compile(r'"reachable": ?true')
    until(lambda: len(reached.findall(machine.run(*asked, check=False).stdout)) == len(SERIALS), "all are reached", 60)
    bank = begin(machine, "11.20", BANK, "by-hand", phase="active")
    hand(machine, BANK, "present-card")
    becomes(machine, bank, status="APPROVAL_REQUESTED")
    return {"BANK": bank}


def tidy(machine: Machine, going_on: set[str]) -> None:
    """Resolve the payments that a page left open, so that the next page shows only its own payments."""
    for identity in (each["client_transaction_id"] for each in shop.payments(machine, "--open")):
        if identity not in going_on:
            machine.run("posd", "resolve", identity, "not_started", "--yes", "--note", "the page is over")
    for serial in (ONE, TWO):
        for what in ("power-off", "power-on", "plug"):
            hand(machine, serial, what)


def hand(machine: Machine, serial: str, what: str) -> None:
    """Perform an action at a terminal, as a person does."""
    machine.run("curl", "-fsS", "--json", "{}", f"http://{CONTROL}/terminals/{serial}/{what}")


def begin(machine: Machine, amount: str, serial: str, scenario: str, **expected: str) -> str:
    """Start a payment with this scenario, as a till does. Return the id after the payment has the expected values."""
    identity = str(uuid.uuid4())
    words = ("--terminal", serial, "--metadata", f"scenario={scenario}", "--id", identity)
    machine.run("systemd-run", "--quiet", "--collect", "--uid=till", "posd", "charge", amount, *words)
    until(lambda: bool(known(machine, identity)), "the payment is recorded", 30)
    becomes(machine, identity, **expected)
    return identity


def charge(machine: Machine, amount: str, serial: str, scenario: str) -> str:
    """Start a payment that its terminal charges, even if posd gets no report of it. Return the id."""
    identity = begin(machine, amount, serial, scenario)
    until(lambda: charged(machine, serial, identity) == 1, "the customer was charged", 60)
    return identity


def known(machine: Machine, identity: str) -> dict[str, Any]:
    """Return posd's record of a payment, or {}."""
    done = machine.run("posd", "show", identity, "--json", check=False)
    return dict(json.loads(done.stdout)) if not done.returncode else {}


def becomes(machine: Machine, identity: str, **expected: str) -> None:
    """Wait until a payment has these values. `result` is the result of the outcome. `attention` is one of the
    attentions.
    """

    def holds() -> bool:
        document = known(machine, identity)
        seen = document | {"result": (document.get("outcome") or {}).get("result")}
        marks = [each["code"] for each in document["attention"]]
        return all(value in marks if name == "attention" else seen[name] == value for name, value in expected.items())

    until(holds, f"payment {identity} gets to {expected}", 120)


def ended(machine: Machine, identity: str, result: str) -> None:
    """Check the result of a payment."""
    assert shop.result(known(machine, identity)) == result


def decide(page: Page, result: str, identity: str) -> str:
    """Decide a payment by the page's command. Return the output."""
    shown = page.type(f"posd resolve ID {result}", answer=DECIDED, ID=identity)
    ended(page.machine, identity, result)
    return shown


def charges(machine: Machine, serial: str, **fields: str) -> list[dict[str, Any]]:
    """Return the ends with these fields in the terminal's ledger that moved money."""
    lines = (machine.root / f"root/ledgers/{serial}.jsonl").read_text().splitlines()
    wanted = ({"kind": "final"} | fields).items()
    return [entry for entry in map(json.loads, lines) if wanted <= entry.items() and entry["charged"]]


def charged(machine: Machine, serial: str, identity: str) -> int:
    """Return the number of charges of a payment."""
    return len(charges(machine, serial, client_transaction_id=identity))


def reference(machine: Machine, serial: str, identity: str) -> str:
    """Return the acquirer's reference of a payment, as a person gets it by telephone."""
    return str(charges(machine, serial, client_transaction_id=identity)[0]["transaction_reference"])


def reversals(machine: Machine, serial: str) -> int:
    """Return the number of reversed charges."""
    return len(charges(machine, serial, operation="void"))


def shows(shown: str, *texts: str) -> None:
    """Check that these texts are in the output in this order. Line breaks do not matter."""
    place = 0
    for each in texts:
        found = shown.find(each, place)
        assert found >= 0, f"the output lacks {each!r}: {shown}"
        place = found


def in_doubt(page: Page) -> None:
    """Follow the page for four payments with a lost reply to the start. One payment runs, one payment was charged, one
    payment did not arrive, and one payment is decided wrongly.
    """
    machine = page.machine
    begin(machine, "3.00", ONE, "lost-acknowledgement", result="approved")  # the terminal has taken the payment
    lost = charge(machine, "3.10", TWO, "lost-acknowledgement-and-all")
    becomes(machine, lost, phase="in_doubt", next_step="ask_person")
    shows(page.type("posd status", 0, 1), f"{lost[:8]} {TWO} charge 3.10 in doubt needs a person")
    log = machine.out("journalctl", "-u", "posd", "-o", "cat")
    shows(log, '"payment.attention"', '"code":"in_doubt"')
    asked = f"attention in_doubt: cannot tell whether terminal {TWO} runs this payment: it closed the connection"
    shows(page.type("posd show ID", ID=lost), asked, "missing proof")
    shown = page.type("posd reconcile ID", 1, 4, 0, ID=lost)
    shows(shown, "The terminal answered that it does not know this payment. That alone proves nothing")
    shows(machine.fails("posd", "charge", "3.20", "--terminal", TWO, user="till", codes=(1,)), "still busy")
    page.type("posd release ID", answer=DECIDED, ID=lost)
    begin(machine, "3.20", TWO, "approve-contactless", result="approved")
    shows(machine.out("posd", "list", "--attention"), lost)
    shows(decide(page, "approved", lost), "approved", "By an operator's decision", NOTE)
    never = begin(machine, "3.30", TWO, "lost-request", phase="in_doubt")
    decide(page, "not_started", never)
    assert charged(machine, TWO, never) == 0
    wrong = begin(machine, "3.40", TWO, "by-hand", phase="active")
    hand(machine, TWO, "present-card")
    hand(machine, TWO, "unplug")
    hand(machine, TWO, "approve")
    words = 'posd resolve ID not_started --operator NAME --note "not in the bank portal at 18:40"'
    shown = page.type(words, answer="y\n", ID=wrong, NAME="Ana")
    shows(shown, "not_started", "By an operator's decision: The payment did not start; the customer was not charged.")
    shows(shown, "an operator's decision", "by Ana, note: not in the bank portal", "To try again, start a new payment.")
    hand(machine, TWO, "plug")
    becomes(machine, wrong, result="approved", attention="outcome_corrected")
    page.type("posd show ID", ID=wrong)
    machine.run("posd", "acknowledge", wrong, "outcome_corrected", "--note", "the till was told")


def at_the_bank(page: Page) -> None:
    """Follow the page for a bank that does not reply, for a terminal that is switched off, and for a customer who
    cannot wait.
    """
    machine = page.machine
    silent = page.given["BANK"]
    becomes(machine, silent, attention="stalled")
    shows(page.type("posd status", 0, 1), f"{silent[:8]} {BANK} charge 11.20 at the bank")
    silence = "reported nothing after APPROVAL_REQUESTED for 60 s, so posd asks it for the outcome"
    shown = " ".join(machine.out("posd", "show", silent).split())
    shows(shown, f"attention stalled: terminal {BANK} {silence}")
    assert re.search("past_point_of_no_return|already asked", machine.run("posd", "abort", silent, check=False).stderr)
    page.type("posd reconcile ID", 0, 4, ID=silent)
    page.type("posd release ID", answer=DECIDED, ID=silent)
    hand(machine, BANK, "approve")
    becomes(machine, silent, result="approved")
    shows(page.type("posd void ID", ID=silent), "approved")
    off = charge(machine, "5.00", ONE, "power-cut-at-the-acquirer")
    page.type("posd reconcile ID", 0, 4, ID=off)
    decide(page, "approved", off)
    page.type("posd void ID", 1, 2, ID=off)
    page.type("posd void --reference UUID --terminal SERIAL", UUID=reference(machine, ONE, off), SERIAL=ONE)
    said = begin(machine, "5.10", TWO, "by-hand", phase="active")
    hand(machine, TWO, "present-card")
    becomes(machine, said, status="APPROVAL_REQUESTED")
    hand(machine, TWO, "power-off")
    hand(machine, TWO, "power-on")
    decide(page, "declined", said)
    assert charged(machine, TWO, said) == 0


def receipt_says_approved(page: Page) -> None:
    """Follow the page for a terminal that cannot report to posd. A search finds one payment and does not find another
    payment. One terminal contradicts itself.
    """
    machine = page.machine
    found = charge(machine, "6.00", ONE, "webhook-never-accepted")
    page.type("posd show ID", ID=found)
    page.type("posd reconcile ID", ID=found)
    ended(machine, found, "approved")
    page.type("posd doctor", 0, 1)
    nothing = charge(machine, "6.10", TWO, "missing-all-and-search")
    becomes(machine, nothing, attention="no_callback")
    page.type("posd show ID", ID=nothing)
    page.type("posd reconcile ID", 4, ID=nothing)
    words = 'posd resolve ID approved --note "receipt 804987" --operator NAME'
    shows(page.type(words, answer="y\n", ID=nothing, NAME="Ana"), "approved", "receipt 804987")
    ended(machine, nothing, "approved")
    page.type("posd acknowledge ID no_callback", answer=DECIDED, ID=nothing)
    assert known(machine, nothing)["attention"] == []
    twice = begin(machine, "6.20", ONE, "approval-after-cancellation", attention="conflicting_final")
    late_charge = reference(machine, ONE, twice)
    shows(page.type("posd show ID", ID=twice), f"APPROVAL (reference {late_charge}) arrived")
    shows(page.type("posd void --reference UUID --terminal SERIAL", UUID=late_charge, SERIAL=ONE), "reversed")
    page.type("posd acknowledge ID CODE", answer=DECIDED, ID=twice, CODE="conflicting_final")
    assert known(machine, twice)["attention"] == []
    late = begin(machine, "6.30", TWO, "canceled-at-the-acquirer", attention="illegal_transition")
    shows(page.type("posd show ID", ID=late), "may have been charged", "illegal_transition")
    machine.run("posd", "acknowledge", late, "illegal_transition", "--note", NOTE)


def charged_twice(page: Page) -> None:
    """Follow the page for two approvals of one payment, and for two payments of one basket."""
    machine = page.machine
    one = begin(machine, "7.00", ONE, "two-approvals", result="approved", attention="conflicting_final")
    assert charged(machine, ONE, one) == 2
    shown = page.type("posd show ID", ID=one)
    references = re.findall(r"APPROVAL \(reference ([0-9a-f-]{36})\)", shown)
    assert len(set(references)) == 2, references
    counts, late = (f"APPROVAL (reference {each})" for each in references[:2])
    shows(shown, f"two final events: {counts} counts, {late} arrived")
    pair = [begin(machine, "7.10", serial, "approve-contactless", result="approved") for serial in (ONE, TWO)]
    today = datetime.datetime.now(ZoneInfo("America/Guayaquil")).date()  # the value of merchant.timezone in the package
    days = {"2026-11-20": str(today), "2026-11-21": str(today + datetime.timedelta(days=1))}
    shown = page.type("posd list --since 2026-11-20 --until 2026-11-21 --all", **days)
    shows(shown, pair[1][:8], TWO, "approved", pair[0][:8], ONE, "approved", one[:8])
    before = reversals(machine, ONE), reversals(machine, TWO)
    shows(page.type("posd void --reference UUID --terminal SERIAL", UUID=references[1], SERIAL=ONE), "approved")
    words = 'posd acknowledge ID conflicting_final --note "second approval voided" --operator NAME'
    page.type(words, answer="y\n", ID=one, NAME="Ana")
    assert known(machine, one)["attention"] == []
    page.type("posd void ID", ID=pair[1])
    assert (reversals(machine, ONE), reversals(machine, TWO)) == (before[0] + 1, before[1] + 1)
    basket = ("--sale", "till-1/42", "--terminal", ONE)
    machine.run("posd", "charge", "7.20", *basket, user="till")
    machine.fails("posd", "charge", "7.20", *basket, user="till", codes=(1,))


def shift(page: Page) -> None:
    """Compare and close a shift with an open payment. Close the shift twice, and again after a lost reply."""
    machine = page.machine
    shows(page.type("posd report --close --begin --operator Ana", answer=DECIDED), "shift")
    begin(machine, "1234.50", ONE, "approve-contactless", result="approved")
    doubt = begin(machine, "12.00", TWO, "lost-acknowledgement-and-all", phase="in_doubt", next_step="ask_person")
    shows(page.type("posd list --open"), doubt[:8])
    shows(page.type("posd report --since last"), "1234.50")
    page.type("posd report --since last --expect 1234.50")
    shows(page.type("posd report --since last --expect 1234.50", 1, **{"1234.50": "1246.50"}), doubt[:8])
    page.type("posd show ID", ID=doubt)
    words = 'posd report --close --operator Ana --note "12.00 less on the terminal: in doubt, 27dec5fc"'
    page.type(words, answer="y\n", **{"27dec5fc": doubt[:8]})
    shows(page.type("posd report --shift last"), "1234.50")
    page.type(words, answer="y\n", **{"27dec5fc": doubt[:8]})
    machine.run("systemctl", "stop", "posd")
    page.type(words, 3, answer="y\n", **{"27dec5fc": doubt[:8]})
    machine.run("systemctl", "start", "posd")
    shows(page.type("posd report --shift last"), "1234.50")
    page.type("posd report --shift 7", **{"7": "1"})
    machine.run("posd", "resolve", doubt, "approved", "--yes", "--note", "the acquirer has it")
    shows(machine.out("posd", "report", "--since", "last"), "12.00")


#: Title of a page -> check.
PAGES: dict[str, Callable[[Page], None]] = {
    "Closing the shift": shift,
    "It hangs at the bank": at_the_bank,
    "The terminal says approved, the till does not": receipt_says_approved,
    "Was the customer charged twice?": charged_twice,
    "The payment is in doubt": in_doubt,
}
