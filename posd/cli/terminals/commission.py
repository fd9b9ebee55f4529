"""`posd terminals commission`: test a new terminal with an operator in front of it, and record the result."""

import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from posd.cli.app import parameters
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Api, Problem, Reply, Unreachable, connect, json_option
from posd.cli.app.context import ExitCode, context
from posd.cli.app.outcome import CurrentState, TimedOut, start
from posd.cli.app.output import Output, aside, money
from posd.cli.app.subject import Document, Subject
from posd.cli.explain import catalogue
from posd.cli.explain.catalogue import named
from posd.cli.payments.decide import RECONCILE_SECONDS
from posd.cli.payments.show import PAYMENT, failure_text
from posd.cli.printing import PRINT_JOB, error_text, text_document
from posd.cli.terminals import proofs
from posd.config import examine

NOTE = "seen working by posd terminals commission"
#: Time-outs in seconds: of a start, of a payment that is canceled, of one with a card (also of a void), of a page.
START_SECONDS, CANCEL_SECONDS, CARD_SECONDS, PRINT_SECONDS = 60.0, 90.0, 300.0, 60.0
#: Seconds before each search for an ended payment. The search is repeated because the terminal's index may be late.
SEARCH_PAUSES = (0.0, 2.0, 5.0)
#: Parts of the test without which posd cannot conclude anything about a payment in doubt.
NEEDED = ("start", "callback", "abort", "search")

CENT, ONE = Decimal("0.01"), Decimal(1)
#: Currencies without decimals in which the vendor's terminals charge (docs/guides/real-terminals.md).
WITHOUT_DECIMALS = frozenset({"CLP", "COP"})
#: Function that returns a text of this command.
say = partial(catalogue.say, "commission")


@click.command()
@click.argument("serial", shell_complete=serials)
@click.option("--operator", default=parameters.caller, show_default="your user", metavar="NAME", help="The operator.")
@click.option("--note", default=NOTE, show_default=True, metavar="TEXT", help="A note to keep with the result.")
@click.option(
    "--amount",
    type=parameters.amount,
    show_default="the smallest amount that the terminal accepts",
    help="Amount of each payment.",
)
@click.option("--print/--no-print", "printing", default=None, help="Print a page (without a question).")
@click.option("--pay/--no-pay", default=None, help="Charge a card as well (without a question).")
@click.option("--void/--no-void", default=None, help="Reverse that charge (without a question).")
@click.option("--yes", is_flag=True, help="Ask nothing; without --pay, abort a test payment and print a page.")
@json_option
@click.pass_context
def commission(ctx: click.Context, /, output: Output, serial: str, yes: bool, **given: Any) -> None:
    """Test a new terminal, and record which calls work as its profile says.

    The command starts a payment and aborts it, searches for it and for a payment that never existed, and prints a page.
    With --pay it also charges a card. A proven call counts as confirmed = true for this terminal, until its profile
    changes. For each unproven call the command says what to do. The result replaces the earlier record.

    Exit code 0: start, callback, abort and search are proven. 1: one of them is not. 4: a payment is still open.
    """
    asking = not yes and parameters.asks()
    parameters.check_usage("commission", no_yes=not yes and not asking)
    context(ctx).set_starts()
    with connect(ctx) as api:
        tell = aside() if output.as_json else output
        walk = _CommissionRun(api, tell, serial, given["amount"] or _smallest(ctx, api, serial), asking)
        try:
            _go(ctx, walk, given)
            reply = walk.record(given["operator"], given["note"])
        except (KeyboardInterrupt, click.Abort):
            walk.leave(say("stopped"))
            sys.exit(ExitCode.OPEN if walk.open else ExitCode.NOT_DONE)
        except TimedOut:
            walk.leave(say("no_end"))
            sys.exit(ExitCode.OPEN)
        except (Problem, Unreachable):
            walk.leave(say("broken_off"))
            raise
    output.json(reply.raw)
    proven = reply.body["commissioned"]["proven"]
    sys.exit(ExitCode.DONE if set(NEEDED) <= set(proven) else ExitCode.NOT_DONE)


def _smallest(ctx: click.Context, api: Api, serial: str) -> Decimal:
    """Return the smallest amount that a terminal can charge.

    The unit of amounts is known only if this user can read the configuration.
    """
    config, _ = examine(Path(context(ctx).config_path), check_files=False)
    terminals = config.terminals if config is not None else ()
    whole = any(item.amount_unit == "whole" for item in terminals if item.serial == serial)
    return ONE if whole or api.get("/version").body.get("currency") in WITHOUT_DECIMALS else CENT


def _go(ctx: click.Context, walk: "_CommissionRun", given: Mapping[str, Any]) -> None:
    """Run all steps. Raise Problem, Unreachable or TimedOut. Raise KeyboardInterrupt or Abort if the operator stops."""
    walk.check()
    walk.cancel()
    if walk.wants(given["printing"], say("print"), usually=True):
        page = f"posd\n{walk.serial}\n{time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        walk.print_page(text_document(ctx, page, walk.serial))
    if walk.wants(given["pay"], say("pay", amount=money(walk.amount)), usually=False):
        walk.pay()
    for charged in walk.charged[:]:
        if walk.wants(given["void"], say("void", amount=money(walk.amount)), usually=walk.asking):
            walk.void(charged)


def _row(seen: proofs.WalkProofs, part: str, lack: str) -> tuple[str, str, str]:
    """Return the row of a part: whether it is proven, and what is missing. `lack`: code of what is missing, or ""."""
    if not lack:
        return part, named("yes"), "-"
    about = next((item.identity for item in seen.payments if not item.acknowledged), "")
    if part == "print" and seen.print_job is not None:
        about = seen.print_job.identity
    return part, named("no"), catalogue.say("lacks", lack, id=about, reason=(seen.unknown or {}).get("reason"))


@dataclass
class _CommissionRun:
    """One test of a terminal. `open`: ids of payments that may run.

    `charged`: ids of charges that were not reversed.
    """

    api: Api
    tell: Output
    serial: str
    amount: Decimal
    asking: bool
    open: list[str] = field(default_factory=list)
    charged: list[str] = field(default_factory=list)
    _payments: list[proofs.ProvedPayment] = field(default_factory=list)
    _shown: bool | None = None
    _print_job: proofs.ProvedPrintJob | None = None

    @property
    def path(self) -> str:
        """Path of the terminal in the API."""
        return f"/terminals/{quote(self.serial, safe='')}"

    def wants(self, given: bool | None, question: str, *, usually: bool) -> bool:
        """Return whether to run a step: by its option, by the operator's answer, or by `usually` without a question."""
        if given is not None or not self.asking:
            return usually if given is None else given
        return parameters.agrees(question, usually=usually)

    def check(self) -> None:
        """Check first that the result can be recorded, and that the operator is ready. Raise Problem or Abort."""
        self.api.post(f"{self.path}/probe", seconds=RECONCILE_SECONDS)  # needs the admin socket, and a known terminal
        self.tell.line(say("introduction", amount=money(self.amount), serial=self.serial))
        if self.asking and not parameters.agrees(say("ready"), usually=True):
            raise click.Abort

    def cancel(self) -> None:
        """Start a payment and abort it. If the terminal refuses the abort, the operator cancels the payment."""
        document = self._start({"type": "charge", "amount": {"subtotal_iva0": self.amount}})
        if document["phase"] != "final":
            if self.asking:
                self._shown = parameters.agrees(say("asks_for_card", amount=money(self.amount)), usually=True)
            try:
                self.api.post(f"{PAYMENT.path(PAYMENT.id(document))}/abort")
                self.tell.line(say("abort_asked"))
            except Problem as problem:
                self.tell.line(say("press", why=problem.detail), "yellow")
            document = self._follow(PAYMENT, document, CANCEL_SECONDS)
        self._ended(document)
        if self._payments[0].status is None:
            self.leave(say("nothing_ended"))
            sys.exit(ExitCode.NOT_DONE)

    def pay(self) -> None:
        """Charge a card."""
        document = self._start({"type": "charge", "amount": {"subtotal_iva0": self.amount}})
        if document["phase"] != "final":
            self.tell.line(say("presents", amount=money(self.amount)), "bold")
            document = self._follow(PAYMENT, document, CARD_SECONDS)
        self._ended(document)
        if self.asking and document["outcome"]["result"] == "approved":
            says_so = parameters.agrees(say("exact", amount=money(self.amount)), usually=None)
            self._shown = says_so and self._shown is not False

    def void(self, charged: str) -> None:
        """Reverse a charge of this test."""
        document = self._follow(PAYMENT, self._start({"type": "void", "original": charged}), CARD_SECONDS)
        self.open.remove(PAYMENT.id(document))
        PAYMENT.show_end(self.tell, document)
        if document["outcome"]["result"] == "approved":
            self.charged.remove(charged)

    def print_page(self, content: Document) -> None:
        """Print a page. If the print job does not end in time, posd continues with it."""
        draft = {"print_job_id": str(uuid.uuid4())}
        path = PRINT_JOB.path(PRINT_JOB.id(draft))
        self.tell.line(f"{named('print job')} {PRINT_JOB.id(draft)}")
        request = {"terminal": self.serial, "document": content}
        try:
            job = start(self.api, path, request, deadline=time.monotonic() + START_SECONDS, away=self._away).body
            job = self._follow(PRINT_JOB, job, PRINT_SECONDS)
        except TimedOut:
            job = self.api.get(path).body
        if words := job["reason"] or error_text(job):
            self.tell.line(words, "yellow")
        with self.tell.busy(say("asking_for_job")):
            asked = self.api.post(f"{path}/reconcile", seconds=RECONCILE_SECONDS).body
        self._print_job = proofs.print_job(asked, self.api.get(f"{path}/history").body["history"])

    def record(self, operator: str, note: str) -> Reply:
        """Record the result, and show it. Raise Problem."""
        for charged in self.charged:
            self.tell.line(say("charged", amount=money(self.amount), id=charged), "yellow")
        with self.tell.busy(say("searching_none")):
            unknown = self.api.post(f"{self.path}/probe", seconds=RECONCILE_SECONDS).body
        seen = proofs.WalkProofs(self._payments, unknown, self._shown, self._print_job)
        lacks = proofs.lacking(seen)
        proven = [part for part, words in lacks.items() if not words]
        reply = self.api.post(f"{self.path}/commission", {"operator": operator, "note": note, "proven": proven})
        self.tell.line()
        self.tell.table(("part", "proven", "lacks"), [_row(seen, *each) for each in lacks.items()])
        self.tell.line(say("recorded", serial=self.serial, operator=operator))
        self.tell.line(say("concludes") if {"abort", "search"} <= set(proven) else say("waits"))
        if "search" in proven and not any(item.status in proofs.OF_ACQUIRER for item in self._payments):
            self.tell.line(say("not_approved"))
        return reply

    def leave(self, why: str) -> None:
        """Print why the test ends early, and the open payments and charges."""
        lines = [why]
        for identity in self.open:
            lines += say("open", id=identity, serial=self.serial).split("\n")
        lines += [say("charged", amount=money(self.amount), id=identity) for identity in self.charged]
        self.tell.note([*lines, say("not_recorded", serial=self.serial)], style="yellow")

    def _start(self, request: Document) -> Document:
        """Start a payment, and return its document.

        The id is printed before the call, and is in `open` until the end.
        """
        identity = str(uuid.uuid4())
        self.tell.line(f"{named(request['type'])} {identity}")
        self.open.append(identity)
        try:
            deadline = time.monotonic() + START_SECONDS
            body = {"terminal": self.serial, **request}
            document: Document = start(self.api, PAYMENT.path(identity), body, deadline=deadline, away=self._away).body
        except Problem as problem:
            if problem.never_started:
                self.open.remove(identity)
            raise
        return document

    def _away(self, reason: str) -> None:
        self.tell.line(say("away", reason=reason), "yellow")

    def _follow(self, subject: Subject, document: Document, seconds: float) -> Document:
        """Show the updates until the payment or print job is final. Return its last document. Raise TimedOut."""
        if document["phase"] == "final":
            return document
        reply = self.api.get(subject.path(subject.id(document)))
        with subject.progress(self.tell, document) as progress:
            for update in subject.follow(self.api, reply, time.monotonic() + seconds):
                progress.show(update)
                if isinstance(update, CurrentState):
                    document = update.transaction
        return document

    def _ended(self, document: Document) -> None:
        """Search for an ended payment, and record what it proves."""
        identity = PAYMENT.id(document)
        path = PAYMENT.path(identity)
        self.open.remove(identity)
        self.tell.line(say("ended", result=catalogue.glossed(document["outcome"]["result"])), "bold")
        searches: list[str] = []
        for pause in SEARCH_PAUSES if document["outcome"]["status"] else ():
            time.sleep(pause)
            with self.tell.busy(say("searching")):
                found = self.api.post(f"{path}/reconcile", seconds=RECONCILE_SECONDS).body
            document = found if found["outcome"] else document
            search = found["last_search"]
            searches.append(search["result"] if search else "no_answer")
            if searches[-1] == "found":
                break
        if document["outcome"]["result"] == "approved":
            self.charged.append(identity)
        elif document["outcome"]["result"] == "not_started":
            self.tell.line(failure_text(document["outcome"]["failure_reason"]), "yellow")
        history = self.api.get(f"{path}/history").body["history"]
        self._payments.append(proofs.payment(document, history, searches, self.amount))
