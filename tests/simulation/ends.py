"""Checks of the stored data and of the feed: after each end of the daemon, and at the end of the run."""

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from posd.base import limits
from posd.base.times import parse_iso
from posd.payments.model import LONG_WAIT
from tests.rig.events import FINALS, RESULTS
from tests.rig.judge import RULES, row_faults
from tests.rig.streams import Reply
from tests.simulation import machine
from tests.simulation.bank import Truth

if TYPE_CHECKING:
    from tests.simulation.chain import Link
    from tests.simulation.till import Basket
    from tests.simulation.world import World

#: Habit of a terminal's events -> the attention of an approval with that habit.
SUSPICIOUS: Final = {
    "other-amount": "amount_differs",
    "unlikely": "approval_unlikely",
    "no-reference": "missing_reference",
}
#: Attentions that only an operator closes.
LASTING: Final = frozenset(
    {"serial_mismatch", "conflicting_final", "outcome_corrected", "approval_unlikely", "illegal_transition"}
    | {"unknown_status", "event_id_reused", "damaged_event"}
)
#: Maximum number of stored events of one payment: the events within the limits, and the first event of each state.
MOST_EVENTS: Final = machine.MOST_EVENTS + limits.FINALS_OF_TRANSACTION.value + 7
#: Rules of the rows that hold at every moment: no damage, no missing row, an outcome if final, no event twice.
SOUND: Final = RULES[:4]

Document = dict[str, Any]


class EndChecks:
    """The data of all checks, and the checks of the stored data and of the feed."""

    def __init__(self, world: "World") -> None:
        self.world, self.truth, self.seen = world, world.truth, world.seen
        self.failures = world.result.failures
        self.feed: list[Document] = []
        #: id -> the newest line of the feed, and the result that the terminal has reported.
        self.newest: dict[str, Document] = {}
        self.stated: dict[str, str] = {}
        self.database_id: str | None = None
        #: `replaced`: another database was installed. `lost_some`: it is a backup, or lacks acknowledged data.
        #: Both end when the follower gets its feed. `reading_anew`: the follower reads this feed from the beginning.
        self.replaced = self.lost_some = self.reading_anew = False
        #: (id, reason) of each line of the feed about a payment.
        self._told: set[tuple[str, str]] = set()
        #: After another database was installed, the feed has no gaps from this number on.
        self.first_seq = 0
        #: Payments of an older posd, id -> phase.
        self.old: dict[str, str] = {}
        #: Print jobs that reached a terminal before the database was rolled back. None if the database was never rolled
        #: back.
        self.printed_before: set[str] | None = None
        #: Time of the last rollback of the database, in seconds of the loop.
        self.went_back = 0.0
        #: Ids that retention has removed.
        self.removed: list[str] = []

    def fail(self, *broken: str) -> None:
        """Record broken promises."""
        for what in (what for what in broken if what not in self.failures):
            self.failures.append(what)
            self.world.note("CHECK", what)
            if self.world.until_failure:
                self.world.loop.stop()

    def holds(self, fact: bool, what: str) -> None:
        """Record a broken promise if a condition is false."""
        if not fact:
            self.fail(what)

    def of(self, truth: Truth, result: str) -> Iterator[str]:
        """Yield the contradictions between an outcome and the true state."""
        if result in truth.words:
            return
        said, shown = {RESULTS[status] for status in truth.said}, f"posd shows {truth.identity} as {result}"
        if result == "approved" and not truth.charged and "approved" not in said:
            yield f"{shown}, and no terminal reported this"
        if result in ("declined", "rejected", "canceled") and result not in said:
            yield f"{shown}, and no terminal reported this (reported: {sorted(said)}, end: {truth.end or 'not yet'})"
        if truth.lied:
            return
        if truth.charged and result != "approved":
            yield f"{shown}, and the customer was charged"
        if result == "not_started" and truth.end not in ("REFUSED", "GONE") and truth.starts:
            yield f"{shown}, and the payment ran (end: {truth.end or 'not yet'})"

    def document(self, document: Document) -> None:
        """Check a payment that a till or an operator has read."""
        for field in ("phase", "next_step"):
            if field in document:
                self.seen(field, document[field])
        self.seen("attention", *(item["code"] for item in document["attention"]))

    # The stored data.

    def stopped(self) -> None:
        """Check that the daemon has recorded the result of every start in an orderly stop."""
        if self.world.machine.task is not None or self.world.felt("unwell"):
            return
        with self.world.machine.disk.without_faults(), closing(opened(self.world.machine.database)) as db:
            left = _ids(db, "WHERE phase = 'starting'")
            self.fail(*(f"an orderly stop of posd left {identity} in phase starting" for identity in sorted(left)))

    def disk(self) -> None:
        """Check that all acknowledged data is on the disk."""
        path = self.world.machine.database
        if not path.exists():
            return
        many = "SELECT client_transaction_id, count(*) FROM events GROUP BY client_transaction_id HAVING count(*) > ?"
        with self.world.machine.disk.without_faults(), closing(opened(path)) as db:
            self.fail(*row_faults(db, SOUND))
            for identity, count in db.execute(many, (MOST_EVENTS,)):
                self.fail(f"the database keeps {count} events of {identity}")
            bodies, removed = _stored(db)
        for identity, truth in self.world.bank.truths.items():
            if identity in removed:
                continue
            for body in truth.kept:
                told = f"posd refused an event of {identity} and did not keep it: {body[:160]!r}"
                self.holds(body in bodies[identity], told)
            for body in truth.acknowledged:
                kept = body in bodies[identity] or self.world.habit_of(identity).events == "flood"
                self.holds(kept, f"posd acknowledged an event of {identity} and has lost it: {body[:160]!r}")

    @property
    def newest_seq(self) -> int:
        """Number of the newest line that was read from the feed of the present database."""
        return self.feed[-1]["seq"] if self.feed and not (self.replaced or self.lost_some) else 0

    def sound(self, path: Path, newest: int) -> None:
        """Check a complete backup. `newest`: the newest change of the feed before the backup."""
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            # Retention may have removed every change. sqlite_sequence still has the number of the last change.
            numbers = "SELECT max(seq) FROM changes UNION SELECT seq FROM sqlite_sequence WHERE name = 'changes'"
            last = max(number or 0 for (number,) in db.execute(numbers))
            self.holds(last >= newest, f"the backup ends with change {last}, and the feed already had change {newest}")
            self.fail(*(f"the backup is wrong: {fault}" for fault in row_faults(db, SOUND)))

    def gone_back(self, before: Path, after: Path) -> None:
        """Record that a snapshot replaces a database. Records that the snapshot lacks are lost. Their ids are kept."""
        self.printed_before, self.went_back = set(self.world.printed), self.world.now
        with self.world.machine.disk.without_faults(), closing(opened(before)) as db:
            known, (stored, removed) = _ids(db), _stored(db)
        with closing(opened(after)) as db:
            ended, (stored_there, removed_there) = _ids(db, "WHERE phase = 'final'"), _stored(db)
        kept, kept_there = set[bytes]().union(*stored.values()), set[bytes]().union(*stored_there.values())
        for truth in self.world.bank.truths.values():
            if truth.identity in removed_there:
                continue  # retention removed the payment before the snapshot
            truth.lost |= truth.identity in known | removed and truth.identity not in ended
            if truth.identity in removed:
                kept |= {*truth.acknowledged, *truth.kept}
            left = [body for body in truth.acknowledged if body in kept_there or body not in kept]
            self.lost_some |= len(left) < len(truth.acknowledged)
            truth.acknowledged = left
            if not any(status_of(body) in FINALS for body in left):
                truth.told_at = None
            truth.kept = [body for body in truth.kept if body in kept_there or body not in kept]

    def installed(self) -> None:
        """Record that the database of an older posd is installed."""
        with closing(opened(self.world.machine.database)) as db:
            self.old = dict(db.execute("SELECT client_transaction_id, phase FROM transactions"))

    # The feed.

    def feed_of(self, database_id: str, first_seq: int) -> bool:
        """Record the database of the feed.

        After a change of the database, the feed begins again. The part before `first_seq` may have gaps.
        """
        before, self.database_id = self.database_id, database_id
        if self.lost_some:
            told = "the database went back in time, and the feed still has the old database_id"
            self.holds(before != database_id, told)
        elif before is not None and not self.replaced:
            self.holds(before == database_id, "the feed has another database_id")
        self.replaced = self.lost_some = False
        if before is None and first_seq > 1:
            self.first_seq = first_seq  # the database was replaced before the feed was read for the first time
        if before in (None, database_id):
            return False
        for known in (self.feed, self.newest, self.stated):
            known.clear()
        self.first_seq = first_seq
        self.reading_anew = True
        return True

    def change(self, change: Document) -> None:
        """Check a change in the feed."""
        expected, seq = self.feed[-1]["seq"] + 1 if self.feed else change["seq"], change["seq"]
        follows = seq in (expected, self.first_seq) or seq < self.first_seq
        self.holds(follows, f"the feed jumps from line {expected - 1} to line {seq}")
        self.feed.append(change)
        if change["kind"] != "transaction":
            return
        identity, result, told = change["id"], change["result"], change.get("outcome", {}).get("result")
        gone = told is None and self.world.plan.retention_days > 0
        self.holds(told == result or gone, f"the feed has result {result} but outcome {told} for {identity}")
        self._told.add((identity, change["reason"]))
        # The state of a payment does not go back, and the terminal's first final result stays.
        if self.reading_anew or change["reason"] == "taken_over":
            # A restore takes over only later changes of the replaced database.
            self.newest.pop(identity, None)
            self.stated.pop(identity, None)
        before, self.newest[identity] = self.newest.get(identity), change
        if before is not None and before["status"] is not None:
            told = f"the status of {identity} went back from {before['status']} to {change['status']}"
            self.holds(rank(change["status"]) >= rank(before["status"]), told)
        if (stated := self.stated.get(identity)) is not None:
            self.holds(result == stated, f"{identity} changed to {result} after the terminal reported {stated}")
        elif result is not None and change["status"] in FINALS:
            self.stated[identity] = result
        if before is not None:
            closed = LASTING.intersection(before["attention"]).difference(change["attention"])
            self.holds(not closed, f"no operator closed {sorted(closed)} of {identity}")

    # The end of the run.

    def accounts(self, report: Document, shifts: list[Document], known: set[str]) -> None:
        """Check the amounts in the report and in all shifts against the acquirer's records."""
        listed = {row["client_transaction_id"]: _cents(row["counted"]) for row in report["payments"]}
        closed = Counter[str]()
        for line in (line for shift in shifts for line in shift["payments"]):
            closed[line["client_transaction_id"]] += _cents(line["counted"]) - _cents(line.get("was"))
        for identity, truth in self.world.bank.truths.items():
            moved = self.world.bank.moved(truth)
            if moved is None or identity not in known or self.world.habit_of(identity).events in SUSPICIOUS:
                continue
            for name, counted in ("report", listed.get(identity, moved * 100)), ("shifts", closed[identity]):
                told = f"the {name} counted {counted} cents for the {truth.kind} {identity}, which moved {moved}"
                self.holds(counted == moved * 100, told)
        total = sum(Decimal(str(item["total"])) for item in report["by_currency"])
        added = sum(Decimal(str(row["counted"] or 0)) for row in report["payments"])
        told = f"the report's total is {total}, and its payments add up to {added}"
        self.holds(total == added or report["unlisted"] > 0, told)

    def nothing_left(self, terminals: list[Document], metrics: str, known: list[Document]) -> None:
        """Check at the end of the run that no finished payment holds a terminal, and no connection is open."""
        open_ones = {item["client_transaction_id"] for item in known if item["phase"] != "final"}
        failing = any(fault.kind in ("disk-full", "disk-error") for fault in self.world.plan.faults)
        for terminal in terminals:
            held = terminal["transaction"]
            # after a fault of the disk posd repeats the write for a while
            free = failing or held is None or held in open_ones
            self.holds(free, f"the ended payment {held} still holds terminal {terminal['serial']}")
        counts = re.findall(r"^(posd_connections\{.*) (\d+)$", metrics, re.MULTILINE)
        self.holds(len(counts) > 1, f"the metrics lack the numbers of connections: {metrics[:300]!r}")
        for name, count in counts:
            self.holds(int(count) <= 2, f"connections are open after the last call: {name} {count}")

    def end(self, transactions: list[Document]) -> None:
        """Check the end of the run. All faults have ended long ago, and no message is under way."""
        known = {item["client_transaction_id"]: item for item in transactions}
        for identity, truth in self.world.bank.truths.items():
            if (document := known.get(identity)) is not None:
                self._payment(truth, document)
            elif truth.starts and self.world.plan.retention_days:
                self._removed(truth)
            elif truth.starts:
                self.fail(f"posd sent {identity} and has lost it")
        for identity, phase in self.old.items():
            now = known[identity]["phase"] if identity in known else "gone"
            kept = now == phase if phase == "final" else now not in ("final", "gone")
            kept |= now == "gone" and self.world.plan.retention_days > 0
            self.holds(kept, f"{identity} changed from phase {phase} of the older posd to {now}")
        for identity in self.world.refused:
            self.holds(identity not in known, f"posd refused {identity} and recorded it")
        for till in self.world.tills:
            for basket in till.baskets:
                self._basket(basket, known)

    def _payment(self, truth: Truth, document: Document) -> None:
        """Check a payment that posd knows at the end of the run."""
        identity, outcome = truth.identity, document["outcome"]
        self.document(document)
        attention = {item["code"] for item in document["attention"]}
        self._feed_ends(document, attention)
        self._steps_told(truth)
        if document["phase"] != "final":
            self._open(truth, document, attention)
            return
        result = outcome["result"]
        code = SUSPICIOUS.get(self.world.habit_of(identity).events)
        if code and outcome["status"] == "APPROVAL" and not truth.lost:
            self.holds(code in attention, f"posd shows the approval of {identity} without the attention {code}")
        final = {status_of(event) for event in truth.acknowledged}.intersection(FINALS)
        told = f"posd shows {identity} without the attention conflicting_final, and has acknowledged {sorted(final)}"
        self.holds(len(final) < 2 or truth.lost or "conflicting_final" in attention, told)
        wrong = [*self.of(truth, result)]
        if not wrong and not truth.lied and truth.charged != (result == "approved") and result not in truth.words:
            wrong = [f"posd shows {identity} as {result}, and the acquirer has {truth.end}"]
        self.fail(*wrong)
        if final and not truth.lied:
            finals = sorted({RESULTS[status] for status in final})
            self.holds(result in finals, f"posd shows {identity} as {result}, and has acknowledged {finals}")
            told = f"an operator's decision stands for {identity}, and the terminal has reported {finals}"
            self.holds(outcome["evidence"][-1]["kind"] != "operator", told)

    def _feed_ends(self, document: Document, attention: set[str]) -> None:
        """Check that the newest line of the feed about a payment shows its state."""
        identity, outcome = document["client_transaction_id"], document["outcome"]
        stands = (document["phase"], document["status"], outcome and outcome["result"], sorted(attention))
        if (last := self.newest.get(identity)) is not None:
            told = (last["phase"], last["status"], last["result"], sorted(last["attention"]))
            self.holds(told == stands, f"the feed's last line of {identity} has {told}, and posd shows {stands}")
        elif not (self.first_seq and self.world.plan.retention_days):
            self.fail(f"the feed has no line for {identity}")  # and retention did not remove the line

    def _steps_told(self, truth: Truth) -> None:
        """Check that each acknowledged event has its line in the feed."""
        if self.first_seq or truth.lost or self.world.plan.retention_days:
            return  # the feed was not read completely
        if any(truth.identity in terminal.found for terminal in self.world.terminals):
            return  # after a search an event may change nothing
        for status in map(status_of, truth.acknowledged):
            told = f"the feed has no line for the acknowledged {status} of {truth.identity}"
            self.holds((truth.identity, f"event:{status}") in self._told, told)

    def _removed(self, truth: Truth) -> None:
        """Check that a missing payment is older than the configured days of retention."""
        if not truth.lost:
            self.removed.append(truth.identity)
        newest = max(moment for moment in (truth.began, truth.at) if moment is not None)
        age = self.world.machine.clocks.true - newest
        kept = timedelta(days=self.world.plan.retention_days)
        self.holds(age >= kept, f"retention removed {truth.identity} too early, after {age}")
        self.seen("removed", str(truth.end))

    def removed_again(self, identity: str, reply: Reply) -> None:
        """Check a repeated start of a payment that retention has removed."""
        if reply.status < 400 or reply.json["code"] != "pruned":
            self.fail(f"posd replied {reply.status} to a start of the removed {identity}: {reply.body[:200]!r}")
            return
        wrong = self.of(self.truth(identity), reply.json["result"])
        self.fail(*(f"{problem} (retention has removed the payment)" for problem in wrong))

    def healthy(self, document: Document) -> None:
        """Check at the end of the run that the certificate is valid and was renewed in time."""
        said = document["checks"]["certificate"]
        self.seen("certificate", said["status"])
        self.holds(said["status"] == "ok", f"the health document reports the certificate as {said}")

    def _open(self, truth: Truth, document: Document, attention: set[str]) -> None:
        """Check that posd reports a payment that is open at the end of the run."""
        identity, shown = truth.identity, f"{document['phase']} {document['status']}"
        # The wall clock may have been ahead at the start of the payment. A young payment waits, since the customer may
        # still be there.
        young = timedelta() <= self.world.machine.clocks.now() - parse_iso(document["created_at"]) < LONG_WAIT
        reason = document["next_step"] == "ask_person" or document["released"] or young
        self.holds(reason, f"{identity} is open without a reason: {shown} {sorted(attention)}")
        habit = self.world.habit_of(identity)
        # If several devices may be the terminal, posd asks no device until an operator has decided.
        if truth.end in FINALS and habit.search == "usual" and not truth.lied and "identity_conflict" not in attention:
            told = f"{identity} is open, although a search would find its end {truth.end}: {shown}"
            self.fail(f"{told}, last search {document['last_search']}")

    def _basket(self, basket: "Basket", known: dict[str, Document]) -> None:
        """Check that the customer of a paid sale is charged once, and the customer of an unpaid sale is not charged."""
        sale, belief = f"sale {basket.sale.number}", basket.belief
        self.holds(belief is not None, f"{sale} never ended")
        if basket.sale.manner == "print" or belief is None:
            return
        self._chain(basket, known)
        truths = [self.truth(identity) for identity in basket.ids]
        for truth in truths:
            self._amount(truth, basket.sale.cents)
        if any(truth.lied or truth.words for truth in truths):
            return
        charges = sum(truth.charged for truth in truths)
        told = f"the till has {sale} as {belief}, and the customer was charged {charges} times"
        self.holds(belief == "left" or charges == (belief == "paid"), told)
        self.holds(charges <= 1, f"the customer was charged {charges} times for {sale}")

    def _chain(self, basket: "Basket", known: dict[str, Document]) -> None:
        """Check that the operations after a payment agree with the data of the till."""
        for link in basket.links[1:]:
            document, identity = known.get(link.identity), link.identity
            truth, original, base = self.truth(identity), link.original, link.base
            assert original is not None
            if truth.lost or document is None or base is None or base.identity not in known:
                continue
            if any(self.truth(item.identity).lost for item in (base, original)):
                continue  # a restore lost the reference or the original
            named = document["transaction_reference"] if link.by_reference else document["original"]
            wanted = original.reference if link.by_reference else original.identity
            told = f"posd shows {named} as the original of {identity}, and the till sent {wanted}"
            self.holds(named == wanted, told)
            derived = known[base.identity]["derived"]
            self.holds(identity in derived, f"`derived` of {base.identity} lacks {identity}: {derived}")
            if truth.starts:
                self._amount(truth, link.amount)
                self.holds(truth.kind == link.kind, f"posd sent the {link.kind} {identity} as {truth.kind}")
                self._reference(link, truth)
                self._reversal(document, truth)

    def _amount(self, truth: Truth, cents: int | None) -> None:
        """Check that the terminal received the amount of the till."""
        told = f"posd sent {truth.amount} for {truth.identity}, and the till requested {cents} cents"
        self.holds(not truth.starts or cents in (None, truth.amount * 100), told)

    def _reference(self, link: "Link", truth: Truth) -> None:
        """Check that posd sent the reference of the original, or of the newest re-authorization."""
        bank, base = self.world.bank, truth.base
        if base is None or truth.original is None:
            return
        chain = [base, *bank.under(base)]
        if any(other.doubtful for other in chain):
            return
        wanted = base
        if link.by_reference and link.original is not None:
            wanted = bank.of(link.original.identity)
        elif link.kind in ("capture", "void"):
            before = chain[: chain.index(truth)]
            wanted = [other for other in before if other is base or (other.kind == "re-auth" and other.charged)][-1]
        told = f"posd sent {link.identity} under the reference of {truth.original.identity}"
        self.holds(truth.original is wanted, told)

    def _reversal(self, document: Document, truth: Truth) -> None:
        """Check whether posd shows a void as a cancellation on the day of its original, and as a refund later."""
        outcome, base = document["outcome"], truth.base
        if truth.kind != "void" or outcome is None or outcome["result"] != "approved" or base is None:
            return
        if truth.at is None or base.at is None or any(item.words or item.lied for item in (truth, base)):
            return
        zone = ZoneInfo(self.world.plan.timezone)
        same_day = truth.at.astimezone(zone).date() == base.at.astimezone(zone).date()
        wanted, shown = "cancellation" if same_day else "refund", outcome["reversal"]
        self.seen("reversal", wanted)
        told = f"posd shows the void {truth.identity} as a {shown} instead of a {wanted}"
        self.holds(shown in (wanted, None), told)


def _cents(amount: float | None) -> int:
    return round((amount or 0) * 100)


def rank(status: str | None) -> int:
    """Return the position of a state in the lifecycle. All final states have the same position."""
    steps = (None, "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED")
    return steps.index(status) if status in steps else len(steps)


def member(event: bytes, name: str) -> str:
    """Return a member of an event as text, or "" without such a member. The event may be damaged."""
    return event.partition(b'"%b": "' % name.encode())[2].partition(b'"')[0].decode()


def status_of(event: bytes) -> str:
    """Return the status of an event."""
    return member(event, "status")


def opened(path: Path) -> sqlite3.Connection:
    """Open a database for reading, and leave its WAL unchanged.

    The last writing connection would copy the WAL into the database file when it closes. The copy would repair the
    effect of a fault.
    """
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def _ids(db: sqlite3.Connection, where: str = "") -> set[str]:
    return {identity for (identity,) in db.execute(f"SELECT client_transaction_id FROM transactions {where}")}


def _stored(db: sqlite3.Connection) -> tuple[dict[str, set[bytes]], set[str]]:
    """Return the stored bodies of each id, and the ids that retention has removed."""
    bodies: dict[str, set[bytes]] = defaultdict(set)
    every = "SELECT client_transaction_id, body FROM events UNION ALL SELECT subject, body FROM quarantine"
    for identity, body in db.execute(every):
        bodies[identity].add(bytes(body))
    return bodies, {identity for (identity,) in db.execute("SELECT client_transaction_id FROM pruned_transactions")}
