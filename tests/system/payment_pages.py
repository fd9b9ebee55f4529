"""docs/guides/operations.md: the pages about payments, printing, the day and the shift, followed on a real machine.

Each page is a check. A simulated terminal or the machine is brought into the state that the page is about; then each
command of the page is typed as it stands, by a user of the group posd-admin, and what it shows and what it ends with is
held against the page and against the terminals' ledgers. The report has all that was typed and shown.
"""

import datetime
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.system import packages, shop
from tests.system.guide_pages import GUIDE, READER, Page, Shops
from tests.system.machine import Machine, need, until
from tests.system.report import Report

PART = "payments"
#: Each page about payments, and what is left to the last, for it takes minutes, runs on a terminal of its own.
SERIALS = tuple(f"SN-000{number}" for number in range(1, 9))
ONE, TWO, THREE, FOUR, BANK, CARD, PAPER, OTHER = SERIALS
CONTROL = "127.0.0.1:6900"
#: People and printers are so much faster than in a shop; the times of posd are its own.
SPEED = "20"
#: A person at the terminals: the simulator's control API, in a machine without curl.
HAND = f"""
import sys, urllib.request
called = urllib.request.Request("http://{CONTROL}/terminals/" + sys.argv[1], sys.argv[2].encode())
called.add_header("content-type", "application/json")
urllib.request.urlopen(called)
"""
#: In place of a backup server: it does what it is told, in a folder of this machine.
SSH = '#!/bin/sh\ncd /srv/backup && exec sh -c "$2"\n'
NOTE = "the acquirer was called"
#: What is asked before a decision: why, and whether it is meant.
DECIDED = f"{NOTE}\ny\n"


def run(report: Report, scratch: Path) -> None:
    """Run the part: a page is a check."""
    shops = Shops(scratch / f"payments-{report.suite}", report.suite)
    begun: dict[str, str] = {}
    try:
        with report.check(PART, "a machine with eight terminals is laid out") as check:
            need("mmdebstrap", "mmdebstrap")
            need("systemd-nspawn", "systemd-container")
            shops.open(packages.given(scratch))
            begun = lay_out(shops.here)
            check.note(shops.package)
        if report.checks[-1].result != "passed":
            return
        with report.check(PART, "every page about payments and printing is followed"):
            assert {*headings("Payments"), *headings("Printing")} <= set(PAGES)
        for heading, follow in PAGES.items():
            with report.check(PART, heading) as check:
                page = Page(heading, shops.here, check)
                page.given |= begun
                try:
                    follow(page)
                    page.end(NOT_TYPED.get(heading))
                finally:
                    begun |= page.given
                    tidy(shops.here, set(begun.values()))
    finally:
        shops.close()


def headings(chapter: str) -> list[str]:
    """Return the pages of a chapter of the guide."""
    found = re.search(rf"^# {chapter}\n(.*?)^# ", GUIDE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/guides/operations.md has no chapter {chapter!r}"
    return re.findall(r"^## (.+)$", found[1], re.MULTILINE)


def lay_out(machine: Machine) -> dict[str, str]:
    """Put the terminals in, and begin what takes five minutes; return the ids of that."""
    machine.run("systemctl", "stop", "terminal", check=False)
    sections = "".join(
        f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://{shop.ADDRESS}:{6868 + place}"\n'
        for place, serial in enumerate(SERIALS)
        if place
    )
    machine.write(shop.CONFIG, machine.out("cat", shop.CONFIG) + "\n" + sections)
    machine.run("systemctl", "reload", "posd")
    machine.write("/usr/local/bin/ssh", SSH)
    machine.run("chmod", "+x", "/usr/local/bin/ssh")
    machine.run("install", "-d", "-o", READER, "/srv/backup")
    switch_on(machine)
    paper = uuid.uuid4().hex
    machine.write(f"/home/{READER}/receipt.txt", "TOTAL 11.20\n")
    words = ("--terminal", PAPER, "--reference", "print:out-of-paper", "--id", paper, "--no-wait")
    machine.run("posd", "print", f"/home/{READER}/receipt.txt", *words)
    return {"PAPER": paper, "CARD": begin(machine, "30.00", CARD, "by-hand")}


def switch_on(machine: Machine) -> None:
    """Start the terminals' simulator."""
    options = ["--terminals", str(len(SERIALS)), "--http", "--listen", f"{shop.ADDRESS}:6868"]
    options += ["--state", "/var/lib/terminals", "--ledger", "/root/ledgers", "--control", CONTROL, "--speed", SPEED]
    options += ["--trust", "/var/lib/posd/tls/ca.crt"]
    machine.run("systemd-run", "--collect", "--unit=terminals", "posd", "simulate", *options)
    reached = "len([1 for each in json.load(sys.stdin)['terminals'] if each['reachable']])"
    asked = f'posd terminals --json | python3 -c "import json, sys; print({reached})"'
    until(
        lambda: machine.run("sh", "-c", asked, check=False).stdout.strip() == str(len(SERIALS)), "all are reached", 60
    )


def tidy(machine: Machine, going_on: set[str]) -> None:
    """Settle what a page left open, so that the next one is told by itself."""
    for line in machine.out("posd", "list", "--open", "--all", "--json").splitlines():
        for document in json.loads(line)["transactions"]:
            if (identity := document["client_transaction_id"]) not in going_on:
                machine.run("posd", "resolve", identity, "not_started", "--yes", "--note", "the page is over")
    for serial in (ONE, TWO, THREE):
        for what in ("power-off", "power-on", "plug"):
            hand(machine, serial, what)


def hand(machine: Machine, serial: str, what: str, **body: Any) -> None:
    """Do something at a terminal, as a person."""
    machine.run("python3", "-c", HAND, f"{serial}/{what}", json.dumps(body))


def begin(machine: Machine, amount: str, serial: str, scenario: str, *options: str) -> str:
    """Start a payment as a till does, which goes as the scenario says; return its id once posd has recorded it."""
    identity = str(uuid.uuid4())
    words = ("--terminal", serial, "--metadata", f"scenario={scenario}", "--id", identity, *options)
    machine.run("systemd-run", "--quiet", "--collect", "--uid=till", "posd", "charge", amount, *words)
    until(lambda: bool(known(machine, identity)), "the payment is recorded", 30)
    return identity


def known(machine: Machine, identity: str) -> dict[str, Any]:
    """Return what posd says of a payment; {} where it does not know it."""
    done = machine.run("posd", "show", identity, "--json", check=False)
    return dict(json.loads(done.stdout)) if not done.returncode else {}


def becomes(machine: Machine, identity: str, **expected: str) -> None:
    """Wait until a payment has these members, `result` being that of its outcome, `attention` one of its marks."""

    def holds() -> bool:
        document = known(machine, identity)
        seen = document | {"result": (document.get("outcome") or {}).get("result")}
        marks = [each["code"] for each in document["attention"]]
        return all(value in marks if name == "attention" else seen[name] == value for name, value in expected.items())

    until(holds, f"payment {identity} gets to {expected}", 120)


def ended(machine: Machine, identity: str, result: str) -> None:
    """Hold how a payment has ended."""
    assert (shop.result(known(machine, identity))) == result


def charged(machine: Machine, serial: str, identity: str) -> int:
    """Return how often the acquirer took a payment, by the terminal's ledger."""
    lines = (machine.root / f"root/ledgers/{serial}.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines if '"kind":"final"' in line]
    return sum(bool(entry["charged"]) for entry in entries if entry["client_transaction_id"] == identity)


def reference(machine: Machine, serial: str, identity: str) -> str:
    """Return the acquirer's reference of a payment, as a person who calls there is told."""
    entries = map(json.loads, (machine.root / f"root/ledgers/{serial}.jsonl").read_text().splitlines())
    ends = [entry for entry in entries if entry["kind"] == "final" and entry["client_transaction_id"] == identity]
    return str(next(entry["transaction_reference"] for entry in ends if entry["charged"]))


def reversals(machine: Machine, serial: str) -> int:
    """Return how many charges the acquirer reversed, by the terminal's ledger."""
    lines = (machine.root / f"root/ledgers/{serial}.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines if '"kind":"final"' in line]
    return sum(bool(entry["charged"]) for entry in entries if entry["operation"] == "void")


def shows(shown: str, *texts: str) -> None:
    """Hold that these stand there, in this order, however the lines are broken."""
    place = 0
    for each in texts:
        found = shown.find(each, place)
        assert found >= 0, f"{each!r} does not stand in: {shown}"
        place = found


def first(page: Page) -> None:
    """One payment in doubt, one at the bank, one waits for the card."""
    machine = page.machine
    till = ("posd", "--socket", "/run/posd/till.sock")
    assert page.type("posd status").startswith("posd: all is well")
    bank = begin(machine, "11.20", BANK, "by-hand")
    becomes(machine, bank, phase="active")
    hand(machine, BANK, "present-card")
    page.given["BANK"] = bank
    card = begin(machine, "11.20", TWO, "by-hand")
    doubt = begin(machine, "11.20", ONE, "lost-acknowledgement-and-all")
    becomes(machine, doubt, phase="in_doubt", next_step="ask_person")
    becomes(machine, bank, status="APPROVAL_REQUESTED")
    shown = page.type("posd status", 1)
    shows(shown, "posd: not well: payments in doubt, attention", "terminals reachable identity commissioned")
    shows(shown, f"{ONE} yes none -", "in doubt", "! open payments 4, 1 in doubt", f"> posd reconcile {doubt[:8]}")
    for words in (
        f"{doubt[:8]} {ONE} charge 11.20 in doubt needs a person",
        f"{card[:8]} {TWO} charge 11.20 waiting for card",
        f"{bank[:8]} {BANK} charge 11.20 at the bank",
        "! attention 1 > posd list --attention",
    ):
        assert words in shown, words
    shown = page.type("posd list --attention")
    shows(shown, doubt[:8], "!in_doubt", f"posd reconcile {doubt}", f"posd release {doubt}", "posd explain in_doubt")
    shows(page.type("posd terminals"), ONE, "yes", doubt[:8], TWO, "yes", card[:8])
    shows(page.type("posd watch", answer="q"), "OPEN 4", "ATTENTION 1", "in_doubt")
    shows(page.type("posd show ID", ID=doubt[:8]), "in_doubt", "attention in_doubt", "recorded, about to be sent")
    shows(page.type("posd explain CODE", CODE="in_doubt"), "means", "money", "do not take the card again", "do")
    before = len(shop.payments(machine))
    shows(page.type("posd doctor", 0, 1), "Configuration", "Terminals", ONE, "failure")
    assert len(shop.payments(machine)) == before
    told = machine.run(*till, "status", user="till", check=False).stdout
    page.check.note(f"till$ posd status\n{told}")
    shows(told, "not well", "not shown", "this is the socket of the tills", "sudo posd status")
    codes(page)
    machine.run("systemctl", "stop", "posd")
    shown = page.type("posd status", 3)
    machine.run("systemctl", "start", "posd")
    shows(shown, "posd: DOES NOT RUN", "service inactive", "> sudo systemctl start posd")
    hand(machine, TWO, "cancel")
    becomes(machine, card, result="canceled")
    page.type("posd show ID", ID=doubt)
    machine.run("posd", "resolve", doubt, "approved", "--yes", "--note", "the ledger has it")


def codes(page: Page) -> None:
    """What exit codes say."""
    for expected, words in (
        (0, ("charge", "1.00", "--terminal", THREE)),
        (1, ("charge", "1.00", "--terminal", THREE, "--metadata", "scenario=decline")),
        (1, ("charge", "1.00", "--terminal", ONE)),
        (2, ("charge", "1.00", "--terminal", "SN-9999")),
        (2, ("charge", "1.00", "--no-such-option")),
        (4, ("charge", "1.00", "--terminal", THREE, "--metadata", "scenario=slow-customer", "--timeout", "0")),
    ):
        done = page.machine.run("posd", *words, user="till", check=False)
        page.check.note(f"till$ posd {' '.join(words)}\n{done.stdout}{done.stderr}[exit code {done.returncode}]")
        assert done.returncode == expected, done


def symptoms(page: Page) -> None:
    """The list of what is seen leads to pages; `posd list --attention` shows a code that has one."""
    assert "No payments" in page.type("posd list --attention")


def starting(page: Page) -> None:
    """The terminal's software hangs: it takes the connection, and does not answer."""
    machine = page.machine
    machine.run("systemctl", "kill", "--signal=STOP", "terminals")
    slow = begin(machine, "2.00", ONE, "approve-contactless")
    assert known(machine, slow)["phase"] == "starting"
    shows(page.type("posd show ID", ID=slow), "phase starting", "next_step wait")
    shows(page.type("posd show ID --history", ID=slow), "recorded, about to be sent")
    shows(page.type("posd terminals"), ONE, slow[:8])
    becomes(machine, slow, phase="in_doubt")
    page.type("posd show ID --history", ID=slow)
    machine.run("systemctl", "kill", "--signal=CONT", "terminals")
    becomes(machine, slow, result="approved")
    page.type("posd show ID --history", ID=slow)
    assert charged(machine, ONE, slow) == 1
    late = begin(machine, "2.10", ONE, "slow-acknowledgement")
    becomes(machine, late, result="approved")
    hand(machine, ONE, "unplug")
    away = begin(machine, "2.20", ONE, "approve-contactless")
    becomes(machine, away, result="not_started")
    page.type("posd show ID", ID=away)
    assert charged(machine, ONE, away) == 0
    hand(machine, ONE, "plug")


def in_doubt(page: Page) -> None:
    """Four payments whose start was not answered: one runs, one was charged, one never came, one is settled wrongly."""
    machine = page.machine
    runs = begin(machine, "3.00", ONE, "lost-acknowledgement")
    becomes(machine, runs, result="approved")
    page.check.note("a payment that the terminal took ended by itself")
    lost = begin(machine, "3.10", TWO, "lost-acknowledgement-and-all")
    becomes(machine, lost, phase="in_doubt", next_step="ask_person")
    shows(page.type("posd status", 0, 1), f"{lost[:8]} {TWO} charge 3.10 in doubt needs a person")
    log = machine.out("journalctl", "-u", "posd", "-o", "cat")
    shows(log, '"payment.attention"', '"code":"in_doubt"')
    until(lambda: charged(machine, TWO, lost) == 1, "the customer was charged", 60)
    asked = f"attention in_doubt: it is not known whether terminal {TWO} runs this payment: it closed the connection"
    shown = page.type("posd show ID", ID=lost)
    shows(shown, asked, "missing proof")
    shown = page.type("posd reconcile ID", 1, 4, 0, ID=lost)
    shows(shown, "The terminal answered that it does not know this payment. That alone proves nothing")
    refused = machine.run("posd", "charge", "3.20", "--terminal", TWO, user="till", check=False)
    page.check.note(refused.stdout + refused.stderr)
    assert refused.returncode == 1
    assert "still busy" in refused.stderr
    page.type("posd release ID", answer=DECIDED, ID=lost)
    following = begin(machine, "3.20", TWO, "approve-contactless")
    becomes(machine, following, result="approved")
    shows(machine.out("posd", "list", "--attention"), lost)
    shows(page.type("posd resolve ID approved", answer=DECIDED, ID=lost), "approved", "By a person's word", NOTE)
    ended(machine, lost, "approved")
    never = begin(machine, "3.30", TWO, "lost-request")
    becomes(machine, never, phase="in_doubt")
    page.type("posd resolve ID not_started", answer=DECIDED, ID=never)
    ended(machine, never, "not_started")
    assert charged(machine, TWO, never) == 0
    wrong = begin(machine, "3.40", TWO, "by-hand")
    becomes(machine, wrong, phase="active")
    hand(machine, TWO, "present-card")
    hand(machine, TWO, "unplug")
    hand(machine, TWO, "approve")
    words = 'posd resolve ID not_started --operator NAME --note "not in the bank portal at 18:40"'
    shown = page.type(words, answer="y\n", ID=wrong, NAME="Ana")
    shows(shown, "not_started", "By a person's word: The payment did not start; the customer was not charged.")
    shows(shown, "a person's word", "by Ana, note: not in the bank portal", "To try again, start a new payment.")
    hand(machine, TWO, "plug")
    becomes(machine, wrong, result="approved", attention="outcome_corrected")
    page.type("posd show ID", ID=wrong)
    machine.run("posd", "acknowledge", wrong, "outcome_corrected", "--note", "the till was told")


def waits_for_card(page: Page) -> None:
    """No customer comes: stopped at the terminal, and by posd."""
    machine = page.machine
    silent = page.given["CARD"]
    becomes(machine, silent, attention="stalled")
    shows(known(machine, silent)["attention"][0]["detail"], CARD, "has been silent", "for 300 s")
    page.type("posd reconcile ID", 0, 4, ID=silent)
    page.type("posd abort ID", 0, 4, ID=silent)
    page.type("posd await ID", 1, ID=silent)
    gone = begin(machine, "4.30", TWO, "power-cut-before-the-card")
    becomes(machine, gone, phase="active")
    words = 'posd resolve ID not_started --operator NAME --note "not in the bank portal"'
    page.type(words, answer="y\n", ID=gone, NAME="Ana")
    ended(machine, gone, "not_started")
    assert charged(machine, TWO, gone) == 0
    red = begin(machine, "4.00", ONE, "by-hand")
    becomes(machine, red, phase="active")
    shows(page.type("posd status", 0, 1), f"{red[:8]} {ONE} charge 4.00 waiting for card")
    hand(machine, ONE, "cancel")
    becomes(machine, red, result="canceled")
    left = begin(machine, "4.10", ONE, "by-hand")
    becomes(machine, left, phase="active")
    shows(page.type("posd abort ID", 0, 4, ID=left), "The terminal was asked to abort")
    shows(page.type("posd await ID", 1, ID=left), "canceled", "the customer was not charged")
    assert charged(machine, ONE, left) == 0
    faster = begin(machine, "4.20", ONE, "abort-raced")
    becomes(machine, faster, phase="active")
    page.type("posd abort ID", 0, 4, ID=faster)
    shows(page.type("posd await ID", ID=faster), "approved", "The customer was charged")
    assert charged(machine, ONE, faster) == 1


def at_the_bank(page: Page) -> None:
    """The bank does not answer; the terminal is switched off at that moment; the customer cannot wait."""
    machine = page.machine
    silent = page.given["BANK"]
    becomes(machine, silent, attention="stalled")
    shows(page.type("posd status", 0, 1), f"{silent[:8]} {BANK} charge 11.20 at the bank")
    shown = machine.out("posd", "show", silent)
    page.check.note(shown)
    silence = "has been silent since APPROVAL_REQUESTED for 60 s; the outcome is still awaited"
    shows(" ".join(shown.split()), f"attention stalled: terminal {BANK} {silence}")
    refused = machine.run("posd", "abort", silent, check=False)
    page.check.note(refused.stdout + refused.stderr)
    assert "past_point_of_no_return" in refused.stderr or "already asked" in refused.stderr, refused
    page.type("posd reconcile ID", 0, 4, ID=silent)
    page.type("posd release ID", answer=DECIDED, ID=silent)
    hand(machine, BANK, "approve")
    becomes(machine, silent, result="approved")
    shows(page.type("posd void ID", ID=silent), "approved")
    off = begin(machine, "5.00", ONE, "power-cut-at-the-acquirer")
    until(lambda: charged(machine, ONE, off) == 1, "the bank approved it", 60)
    page.type("posd reconcile ID", 0, 4, ID=off)
    page.type("posd resolve ID approved", answer=DECIDED, ID=off)
    ended(machine, off, "approved")
    page.type("posd void ID", 1, 2, ID=off)
    page.type("posd void --reference UUID --terminal SERIAL", UUID=reference(machine, ONE, off), SERIAL=ONE)
    said = begin(machine, "5.10", TWO, "by-hand")
    becomes(machine, said, phase="active")
    hand(machine, TWO, "present-card")
    becomes(machine, said, status="APPROVAL_REQUESTED")
    hand(machine, TWO, "power-off")
    hand(machine, TWO, "power-on")
    page.type("posd resolve ID declined", answer=DECIDED, ID=said)
    ended(machine, said, "declined")
    assert charged(machine, TWO, said) == 0


def receipt_says_approved(page: Page) -> None:
    """The terminal cannot tell posd: a search finds it, or finds nothing; and one contradicts itself."""
    machine = page.machine
    found = begin(machine, "6.00", ONE, "webhook-never-accepted")
    until(lambda: charged(machine, ONE, found) == 1, "the receipt says approved", 60)
    page.type("posd show ID", ID=found)
    page.type("posd reconcile ID", ID=found)
    ended(machine, found, "approved")
    page.type("posd doctor", 0, 1)
    nothing = begin(machine, "6.10", TWO, "missing-all-and-search")
    until(lambda: charged(machine, TWO, nothing) == 1, "the receipt says approved", 60)
    becomes(machine, nothing, attention="no_callback")
    page.type("posd show ID", ID=nothing)
    page.type("posd reconcile ID", 4, ID=nothing)
    words = 'posd resolve ID approved --note "receipt 804987" --operator NAME'
    shows(page.type(words, answer="y\n", ID=nothing, NAME="Ana"), "approved", "receipt 804987")
    ended(machine, nothing, "approved")
    page.type("posd acknowledge ID no_callback", answer=DECIDED, ID=nothing)
    assert known(machine, nothing)["attention"] == []
    twice = begin(machine, "6.20", ONE, "approval-after-cancellation")
    becomes(machine, twice, attention="conflicting_final")
    charge = re.search(r"APPROVAL \(reference ([0-9a-f-]{36})\) came after", page.type("posd show ID", ID=twice))
    assert charge is not None
    assert charge[1] == reference(machine, ONE, twice)
    shows(page.type("posd void --reference UUID --terminal SERIAL", UUID=charge[1], SERIAL=ONE), "reversed")
    page.type("posd acknowledge ID CODE", answer=DECIDED, ID=twice, CODE="conflicting_final")
    assert known(machine, twice)["attention"] == []
    late = begin(machine, "6.30", TWO, "canceled-at-the-acquirer")
    becomes(machine, late, attention="illegal_transition")
    shows(page.type("posd show ID", ID=late), "may have been charged all the same", "illegal_transition")
    machine.run("posd", "acknowledge", late, "illegal_transition", "--note", NOTE)


def no_receipt(page: Page) -> None:
    """The proof is in posd."""
    machine = page.machine
    paid = begin(machine, "11.20", ONE, "approve-contactless")
    becomes(machine, paid, result="approved")
    shown = page.type("posd show ID", ID=paid[:8])
    outcome = known(machine, paid)["outcome"]
    shows(shown, "approved", "The customer was charged.", "authorized 11.20", "card VISA CREDIT, CONTACTLESS")
    shows(shown, f"authorization {outcome['receipt']['authorization_code']}", f"ticket {outcome['ticket_number']}")
    shows(shown, f"reference {outcome['transaction_reference']}", "the terminal reported it")
    assert charged(machine, ONE, paid) == 1


def charged_twice(page: Page) -> None:
    """Two approvals of one payment, and two payments for one basket."""
    machine = page.machine
    one = begin(machine, "7.00", ONE, "two-approvals")
    becomes(machine, one, result="approved", attention="conflicting_final")
    assert charged(machine, ONE, one) == 2
    shown = page.type("posd show ID", ID=one)
    references = re.findall(r"APPROVAL \(reference ([0-9a-f-]{36})\)", shown)
    assert len(set(references)) == 2, references
    shows(
        shown,
        f"two finals: APPROVAL (reference {references[0]}) stands, APPROVAL (reference {references[1]}) came after",
    )
    pair = [begin(machine, "7.10", serial, "approve-contactless") for serial in (ONE, TWO)]
    for identity in pair:
        becomes(machine, identity, result="approved")
    today = datetime.datetime.now(ZoneInfo("America/Guayaquil")).date()  # merchant.timezone, as it came
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
    again = machine.run("posd", "charge", "7.20", *basket, user="till", check=False)
    page.check.note(again.stdout + again.stderr)
    assert again.returncode == 1


def busy(page: Page) -> None:
    """The till is refused."""
    machine = page.machine
    other = begin(machine, "8.00", ONE, "by-hand")
    becomes(machine, other, phase="active")
    refused = machine.run("posd", "charge", "8.10", "--terminal", ONE, user="till", check=False)
    page.check.note(refused.stdout + refused.stderr)
    shows(" ".join(refused.stderr.split()), f"posd: cannot start: terminal {ONE} is still busy with {other} (",
          f"abort it (posd abort {other}) or free the terminal (posd release {other})")  # fmt: skip
    shows(page.type("posd show ID", ID=other), "phase active", "status TERMINAL_ACKNOWLEDGED")
    page.type("posd release ID", answer=DECIDED, ID=other)
    runs = begin(machine, "8.20", ONE, "approve-contactless")
    becomes(machine, runs, result="not_started")
    shows(" ".join(machine.out("posd", "show", runs).split()), "the terminal refused the request (HTTP 409")
    assert charged(machine, ONE, runs) == 0
    hand(machine, ONE, "cancel")
    becomes(machine, other, result="canceled")
    following = begin(machine, "8.30", ONE, "approve-contactless")
    becomes(machine, following, result="approved")


def abort_does_nothing(page: Page) -> None:
    """Each line of the table."""
    machine = page.machine
    asked = begin(machine, "9.00", ONE, "abort-ignored")
    becomes(machine, asked, phase="active")
    shows(page.type("posd abort ID", 0, 4, ID=asked), "The terminal was asked to abort. It may still approve")
    shows(page.type("posd await ID", ID=asked), "approved")
    shows(page.type("posd abort ID", 1, ID=asked), "cannot abort: it has already ended (approved)")
    page.type("posd void ID", ID=asked)
    bank = begin(machine, "9.10", ONE, "by-hand")
    becomes(machine, bank, phase="active")
    hand(machine, ONE, "present-card")
    becomes(machine, bank, status="APPROVAL_REQUESTED")
    shows(page.type("posd abort ID", 1, ID=bank), "cannot abort: the acquirer was already asked")
    hand(machine, ONE, "decline")
    becomes(machine, bank, result="declined")
    lost = begin(machine, "9.20", ONE, "lost-request")
    becomes(machine, lost, phase="in_doubt")
    shows(page.type("posd abort ID", 1, 4, ID=lost), "says that it runs nothing it could abort")
    machine.run("posd", "release", lost, "--note", NOTE)
    shows(page.type("posd abort ID", 1, 4, ID=lost), "not_abortable")
    machine.run("posd", "resolve", lost, "not_started", "--yes", "--note", NOTE)


def print_stuck(page: Page) -> None:
    """The paper is out: new paper ends one job; one is said to have come out, one not, and is printed again."""
    machine = page.machine
    job = page.given["PAPER"]
    print_becomes(machine, job, attention="print_stuck")
    shown = page.type("posd print-jobs --attention")
    shows(shown, "!print_stuck")
    stuck = (
        f"attention print_stuck: terminal {PAPER} has had it for 300 s without an end (IN_PROGRESS): look whether it"
    )
    seen = machine.out("posd", "print-jobs", job)
    page.check.note(seen)
    shows(" ".join(seen.split()), stuck)
    hand(machine, PAPER, "paper")
    print_becomes(machine, job, result="COMPLETED")
    page.type("posd print-jobs")
    jobs = [printed(page, "print:stuck"), printed(page, "print:forgets")]
    words = 'posd resolve ID COMPLETED --note "it came out" --operator NAME'
    shows(page.type(words, answer="y\n", ID=jobs[0], NAME="Ana"), "COMPLETED")
    shows(page.type("posd resolve ID FAILED", answer=DECIDED, ID=jobs[1]), "FAILED")
    again = page.type("posd print FILE --reprint-of ID --terminal SERIAL", FILE="receipt.txt", ID=jobs[1], SERIAL=PAPER)
    shows(again, "printed", "The terminal printed it.")
    paid = begin(machine, "1.10", ONE, "approve-contactless")
    becomes(machine, paid, result="approved")
    shows(page.type("posd show ID", ID=paid), "approved")


def printed_twice(page: Page) -> None:
    """A job in doubt is not sent again; FAILED can leave a part on the paper."""
    machine = page.machine
    doubt = printed(page, "print:error")
    print_becomes(machine, doubt, attention="in_doubt")
    shows(page.type("posd print-jobs ID", ID=doubt), "in_doubt", "not known whether")
    assert slips(machine, doubt) == 0
    machine.run("posd", "resolve", doubt, "FAILED", "--yes", "--note", NOTE)
    failed = printed(page, "print:fails")
    print_becomes(machine, failed, result="FAILED")
    shows(page.type("posd print-jobs ID", ID=failed), "failed", "A part of it may be on the paper", "FAILED")
    paid = begin(machine, "1.20", ONE, "approve-contactless")
    becomes(machine, paid, result="approved")
    shows(page.type("posd show ID", ID=paid), "approved", "The customer was charged")
    assert charged(machine, ONE, paid) == 1


def printed(page: Page, reference: str) -> str:
    """Hand a print job to terminal OTHER, which does as the reference says; return its id."""
    job = uuid.uuid4().hex
    words = ("--terminal", OTHER, "--reference", reference, "--id", job, "--no-wait")
    page.machine.run("posd", "print", f"/home/{READER}/receipt.txt", *words, check=False)
    return job


def print_job(machine: Machine, job: str) -> dict[str, Any]:
    return dict(json.loads(machine.out("posd", "print-jobs", job, "--json")))


def print_becomes(machine: Machine, job: str, *, result: str = "", attention: str = "") -> None:
    """Wait until a print job has that attention, and has ended so."""

    def holds() -> bool:
        document = print_job(machine, job)
        seen = document["status"] if document["phase"] == "final" else ""
        return seen == result and (not attention or attention in [each["code"] for each in document["attention"]])

    until(holds, f"print job {job} gets to {result} {attention}", 400)


def slips(machine: Machine, job: str) -> int:
    """Return on how many slips a job came out, by the terminals' ledgers."""
    texts = [file.read_text() for file in (machine.root / "root/ledgers").iterdir()]
    entries = [json.loads(line) for text in texts for line in text.splitlines() if '"kind":"printed"' in line]
    return sum(entry["text"] is not None for entry in entries if entry["print_job_id"] == job)


def every_day(page: Page) -> None:
    """Closing time, and the week's backup, kept off this machine."""
    machine = page.machine
    page.type("posd list --open")
    page.type("posd list --attention")
    shows(page.type("posd report"), "approved")
    page.type("posd status", 0, 1)
    page.type("posd doctor", 0, 1)
    machine.run("systemctl", "start", "posd-backup.service")
    newest = page.type("sudo ls -t /var/lib/posd/backups").split()[0]
    page.type("sudo -u posd posd verify /var/lib/posd/backups/NAME", NAME=newest)
    page.type("posd backup - | ssh backup@server 'cat > pos-1.db'")
    page.check.note(machine.out("posd", "verify", "/srv/backup/pos-1.db"))
    page.type("posd backup --into DIR --keep 14", DIR="/var/lib/posd/backups")
    shows(page.type("systemctl list-timers"), "posd-backup.timer")


def shift(page: Page) -> None:
    """A shift with an open payment is compared and closed; pressed twice, and after an answer that did not come."""
    machine = page.machine
    shows(page.type("posd report --close --begin --operator Ana", answer=DECIDED), "shift")
    paid = begin(machine, "1234.50", ONE, "approve-contactless")
    becomes(machine, paid, result="approved")
    doubt = begin(machine, "12.00", TWO, "lost-acknowledgement-and-all")
    becomes(machine, doubt, phase="in_doubt", next_step="ask_person")
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


def slow(page: Page) -> None:
    """The terminal was asleep: six seconds before it answers."""
    machine = page.machine
    asleep = begin(machine, "2.00", ONE, "slow-acknowledgement")
    becomes(machine, asleep, result="approved")
    shows(page.type("time posd status", 0, 1), "posd", "real")
    page.type("posd status", 0, 1)
    shows(page.type("posd metrics"), "posd_")
    page.type("posd doctor", 0, 1)
    shown = page.type("posd show ID --history", ID=asleep)
    shows(shown, "recorded, about to be sent", "sent: the terminal took it")


def logs_grow(page: Page) -> None:
    """The journal is bounded, and says what matters."""
    shows(page.type("journalctl --disk-usage"), "journals")
    page.type("systemctl status systemd-journald")
    page.type("sudo journalctl --vacuum-size=200M")
    page.type("posd logs -p warning")
    paid = begin(page.machine, "2.30", ONE, "approve-contactless")
    becomes(page.machine, paid, result="approved")
    shows(page.type("posd show ID --history", ID=paid), "event APPROVAL")


#: In this order, so that what takes minutes to show has begun with the first.
PAGES: dict[str, Callable[[Page], None]] = {
    "The first three commands": first,
    "What do you see?": symptoms,
    "Printed twice, or not at all?": printed_twice,
    "Closing the shift": shift,
    "Every day, every week": every_day,
    "The tills are slow": slow,
    "The logs grow": logs_grow,
    "It hangs at the bank": at_the_bank,
    "The terminal says approved, the till does not": receipt_says_approved,
    "The till says approved, the customer has no receipt": no_receipt,
    "Was the customer charged twice?": charged_twice,
    "The terminal is busy, and no customer pays": busy,
    "Abort does nothing": abort_does_nothing,
    "The payment is in doubt": in_doubt,
    "The payment hangs at starting": starting,
    "A print job is stuck": print_stuck,
    "It waits for the card, and no customer pays": waits_for_card,
}
#: Page -> the commands on it that are not typed, and why.
NOT_TYPED: dict[str, dict[str, str]] = {
    "The terminal says approved, the till does not": {
        "posd relay": "the page says that what it reads counts for no till"
    },
}
