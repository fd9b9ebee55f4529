"""Checks of the promises against the acquirer's records, at each step and at the end."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from posd.base import limits
from posd.base.times import parse_iso
from posd.payments.model import LONG_WAIT
from tests.simulation import machine
from tests.simulation.bank import Truth
from tests.simulation.http import Reply
from tests.support.events import FINALS, RESULTS

if TYPE_CHECKING:
    from tests.simulation.chain import Link
    from tests.simulation.machine import Line
    from tests.simulation.terminal import Payment
    from tests.simulation.till import Basket
    from tests.simulation.world import World

#: Log events that always show a fault.
FAULTS: Final = frozenset({"posd.internal_error", "posd.crashed", "posd.library", "log.unlisted"})
#: Habit of a terminal's events -> the attention of an approval with that habit.
SUSPICIOUS: Final = {
    "other-amount": "amount_differs",
    "unlikely": "approval_unlikely",
    "no-reference": "missing_reference",
}


#: Maximum number of stored events of one payment: the events within the limits, and the first event of each state.
MOST_EVENTS: Final = machine.MOST_EVENTS + limits.FINALS_OF_TRANSACTION.value + 7
#: Serial of a terminal of another shop.
FOREIGN: Final = b"SN-FOREIGN"
#: Maximum duration of a call that waits for nothing, and maximum time for which a past fault has an effect, in seconds.
ANSWER_SECONDS: Final = 1.0
RECOVERY_SECONDS: Final = 30.0
#: Last messages of a stream (docs/guides/streams.md).
LAST_WORDS: Final = ("outcome", "draining", "cut_off", "problem")
#: A call that began this many seconds before a stop has certainly arrived.
STOP_SECONDS: Final = 0.01
#: Maximum time until a follower of the feed gets a change, in seconds.
STREAM_SECONDS: Final = 2.0
#: Maximum time until posd searches for a missing event, in seconds. The time of a search under way is added.
GAP_SECONDS: Final = 3.0
#: Maximum number of searches for other payments of the terminal that posd may send before this search. These searches
#: may get no reply.
GAP_SEARCHES: Final = 4
#: Maximum time until a waiting till gets an end that a search finds, in seconds. This time is longer than the longest
#: pause between two searches.
WAIT_SECONDS: Final = 450.0
#: Maximum time until an operator is asked, in seconds.
SHOWN_SECONDS: Final = 2400.0
#: Maximum time until a till gets the end of a print job, in seconds. The time is the longest pause between two polls,
#: plus a margin.
PRINT_SECONDS: Final = 90.0


class Checks:
    """The checks of all promises, with their data."""

    def __init__(self, world: "World") -> None:
        self.world, self.truth, self.seen = world, world.truth, world.seen
        self.failures: list[str] = []
        #: Id -> results that posd has shown for this id, in order.
        self.shown: dict[str, list[str]] = {}
        self.feed: list[dict[str, Any]] = []
        #: id -> the newest line of the feed, and the result that the terminal has reported.
        self.newest: dict[str, dict[str, Any]] = {}
        self.stated: dict[str, str] = {}
        self.database_id: str | None = None
        #: Another database was installed, and its feed has not been read yet.
        self.replaced = False
        #: An installed database lacks acknowledged data, or was restored.
        self.lost_some = False
        #: (id, reason) of each line of the feed about a payment.
        self._told: set[tuple[str, str]] = set()
        #: (id, reason) of each line of the stream about a payment.
        self._streamed: set[tuple[str, str]] = set()
        #: After another database was installed, the feed has no gaps from this number on.
        self.first_seq = 0
        #: Payments of an older posd, id -> phase.
        self.old: dict[str, str] = {}
        #: The feed of an installed database is being read from its beginning.
        self.reading_anew = False
        #: Print jobs that reached a terminal before the database was rolled back. None if the database was never rolled
        #: back.
        self.printed_before: set[str] | None = None
        #: Time of the last rollback of the database, in seconds of the loop.
        self._went_back = 0.0
        #: Ids that retention has removed.
        self.removed: list[str] = []
        #: (life, kind) -> time of the last log line about refused strangers.
        self._refused: dict[tuple[int, str], float] = {}
        self._stopping, self._stopping_since = 0, 0.0

    def fail(self, what: str) -> None:
        """Record a broken promise."""
        if what not in self.failures:
            self.failures.append(what)
            self.world.note("CHECK", what)
            if self.world.until_failure:
                self.world.loop.stop()

    def holds(self, fact: bool, what: str) -> None:
        """Record a broken promise if a condition is false."""
        if not fact:
            self.fail(what)

    # During the run.

    def start(self, truth: Truth) -> None:
        """Check a start that has reached a terminal."""
        self.world.start_came.set()
        self.holds(len(truth.starts) == 1, f"posd sent {truth.identity} {len(truth.starts)} times")
        if (base := truth.base) is not None:
            chain = [base, *self.world.bank.under(base)]
            wrong = sorted(self.world.bank.wrong(base, truth))
            sure = not any(other.lied or other.words or other.lost for other in chain)
            told = f"posd sent {truth.kind} {truth.identity} of {truth.amount}, and the rules refuse it: {wrong}"
            self.holds(not wrong or not sure, told)

    def busy(self, running: "Payment", identity: str) -> None:
        """Check a start that reached a busy terminal. posd must have had evidence that the terminal was free."""
        truth = self.truth(running.identity)
        known = truth.lied or truth.released or bool(truth.words) or truth.refused or truth.lost
        self.holds(known, f"posd sent {identity} to {running.serial} while {running.identity} runs there")

    def print_start(self, identity: str) -> None:
        """Check a print job that has reached a terminal."""
        self.world.printed[identity] = self.world.printed.get(identity, 0) + 1
        again = self.printed_before is not None and identity in self.printed_before
        self.holds(self.world.printed[identity] == 1 or again, f"posd sent print job {identity} twice")

    def print_forgotten(self, identity: str) -> None:
        """Record a broken promise: posd does not know a print job that it has acknowledged."""
        self.holds(self.printed_before is not None, f"posd acknowledged print job {identity} and has lost it")

    def event(self, payment: "Payment", event: bytes, reply: Reply, began: float) -> None:
        """Check the reply to an event that was sent at `began`."""
        truth = self.truth(payment.identity)
        self.seen("event-answer", str(reply.status))
        if 200 <= reply.status < 300:
            if began >= self._went_back:  # an earlier event may be in the replaced database only
                truth.acknowledged.append(event)
            if truth.told_at is None and _status(event) in FINALS:
                truth.told_at = self.world.now
        elif reply.status not in (400, 403, 413, 429, 503):
            self.fail(f"posd replied {reply.status} to an event of {payment.identity}: {reply.body[:200]!r}")
        if reply.status in (400, 403) and began >= self._went_back:
            truth.kept.append(event)
        if reply.status in (400, 403) and payment.habit.events != "broken" and FOREIGN not in event:
            self.fail(f"posd refused a good event of {payment.identity}: {reply.status} {reply.body[:300]!r}")
        if 200 <= reply.status < 300 and truth.told_at is None:
            self._gap(payment, event, began)
        if 200 <= reply.status < 300 and self.world.follower is not None and not self.world.plan.retention_days:
            self.world.loop.call_later(STREAM_SECONDS, self._followed, payment, _status(event), self.world.now)

    def _followed(self, payment: "Payment", status: str, since: float) -> None:
        """Check that the follower of the feed has received the change of an acknowledged event."""
        world, identity = self.world, payment.identity
        if world.follower is None or world.follower.since > since or identity in world.terminal(payment.serial).found:
            return  # a search found the payment, so the event may change nothing
        if world.felt("crowd"):
            return  # the follower is still reading hundreds of earlier changes
        told = (identity, f"event:{status}") in self._streamed
        quiet = world.free_since("") + RECOVERY_SECONDS < since and not world.truth(identity).lost
        self.holds(told or not quiet, f"the stream of the feed has no line for {status} of {identity}")

    def streamed(self, change: dict[str, Any], before: int) -> None:
        """Check a change on the stream of the feed. `before`: number of the previous change, 0 if unknown."""
        told = f"the stream of the feed jumps from line {before} to line {change['seq']}"
        # the first change of another database has no predecessor
        follows = before in (0, change["seq"] - 1) or change["seq"] == self.first_seq
        self.holds(follows or self.lost_some or self.replaced, told)
        self._streamed.add((change["id"], change["reason"]))

    def _gap(self, payment: "Payment", event: bytes, began: float) -> None:
        """Check that posd searches after it acknowledged an event whose predecessor is missing.

        The event was sent at `began`. The search can reach the terminal before the reply to the event.
        """
        truth, world = self.truth(payment.identity), self.world
        before = _member(event, "previous_status")
        known = {_status(other) for other in truth.acknowledged}
        terminal = world.terminal(payment.serial)
        late = any(_rank(status) > _rank(_status(event)) for status in known)
        if late or truth.said or before in ("", "TERMINAL_ACKNOWLEDGED", *FINALS, *known) or terminal.announces:
            return
        if payment.identity in terminal.found or payment.habit.extra == "after-final":
            return  # a search has found the event, or the step is out of order and nothing is missing
        world.seen("gap", before)
        self._look_at_gap(payment, before, began, GAP_SEARCHES)

    def _look_at_gap(self, payment: "Payment", missing: str, since: float, others: int) -> None:
        asked_by = GAP_SECONDS + self.world.plan.reply_timeout
        self.world.loop.call_later(asked_by, self._gap_asked, payment, missing, since, others)

    def _gap_asked(self, payment: "Payment", missing: str, since: float, others: int) -> None:
        truth, world = self.truth(payment.identity), self.world
        over = truth.said or truth.lost or truth.words or world.free_since(payment.serial) >= since
        if missing in map(_status, truth.acknowledged):
            return  # the missing event has arrived
        searched = world.terminal(payment.serial).searched
        asked = searched.get(payment.identity, 0.0) >= since
        if not asked and others and world.now - max(searched.values(), default=0.0) < world.plan.reply_timeout:
            self._look_at_gap(payment, missing, since, others - 1)  # another search is under way
            return
        self.holds(bool(over) or asked, f"posd did not search for a missing event of {payment.identity}")

    def delivered(self, serial: str, began: float, reply: Reply | None) -> None:
        """Check that a terminal's request gets a reply in time, unless a fault prevents the reply."""
        took = self.world.now - began
        if reply is not None and reply.status != 503 and took < ANSWER_SECONDS:
            return
        said = "did not reply" if reply is None else f"replied {reply.status}"
        told = f"posd {said} to a call of {serial} in {took:.1f} s, and no fault explains that"
        self.holds(self.world.free_since(serial) + RECOVERY_SECONDS > began, told)

    def answered(self, path: str, began: float, seconds: float, reply: Reply | None) -> None:
        """Check that a till's call gets a reply in time, unless a fault prevents the reply.

        `reply`: None without a reply. `seconds`: the longest permitted time.
        """
        took = self.world.now - began
        if took < seconds + ANSWER_SECONDS:
            return
        free = max(self.world.free_since(terminal.serial) for terminal in self.world.terminals)
        said = "did not reply" if reply is None else f"replied {reply.status}"
        told = f"posd {said} to {path} in {took:.1f} s, and no fault explains that"
        self.holds(free + RECOVERY_SECONDS > began, told)

    def waits(self, identity: str, serial: str, document: dict[str, Any]) -> None:
        """Check that a till does not wait long after the end of a payment, unless posd asks an operator."""
        truth, world = self.truth(identity), self.world
        if truth.ended is None or world.now - truth.ended < WAIT_SECONDS or document["released"]:
            return
        over = world.now - max(truth.ended, world.free_since(serial))
        shown = over < SHOWN_SECONDS or document["next_step"] == "ask_person"
        told = f"a till still waits for {identity}, which ended as {truth.end} long ago, and posd asks no operator"
        self.holds(shown, told)
        if over < WAIT_SECONDS:
            return
        found = truth.end in FINALS and world.habit_of(identity).search in ("usual", "late-index") and not truth.lied
        if found and not any(item["code"] == "identity_conflict" for item in document["attention"]):
            self.fail(
                f"a till still waits for {identity}, which ended as {truth.end} long ago, and no search found the end"
            )

    def intruder(self, identity: str, kind: str, reply: Reply) -> None:
        """Check the reply to a body that is not an event of a payment."""
        wanted = {"other-payment": 400, "too-large": 413}.get(kind, 403)
        self.seen("intruder", f"{kind} {reply.status}")
        told = f"posd replied {reply.status} to a forged event of {identity} ({kind})"
        self.holds(reply.status in (wanted, 503), told)

    def reply(self, reply: Reply) -> None:
        """Check a reply to a till or an operator."""
        if reply.status >= 400:
            self.seen("problem", reply.json["code"])
        if reply.status == 500:
            self.fail(f"posd replied 500 to a call: {reply.body[:300]!r}")

    def document(self, document: dict[str, Any]) -> None:
        """Check a payment that a till or an operator has read."""
        for field in ("phase", "next_step"):
            if field in document:
                self.seen(field, document[field])
        for item in document["attention"]:
            self.seen("attention", item["code"])

    def refused_start(self, identity: str, reply: Reply) -> None:
        """Check that posd sent nothing for a refused start.

        A check at the end of the run shows that posd recorded nothing.
        """
        self.holds(not self.truth(identity).starts, f"posd refused {identity} ({reply.status}) and sent it")
        self.world.refused[identity] = None

    def unexpected_problem(self, basket: "Basket", reply: Reply) -> None:
        """Record a broken promise: a till got a problem that posd must not send for this call."""
        self.fail(f"posd replied {reply.status} to sale {basket.sale.number}: {reply.body[:300]!r}")

    def acquirer_asked(self, identity: str) -> bool:
        """Whether posd has acknowledged the event about the terminal's request to the acquirer."""
        return any(_status(event) == "APPROVAL_REQUESTED" for event in self.truth(identity).acknowledged)

    def refused_though_asked(self, truth: Truth) -> bool:
        """Whether a terminal ended a payment itself after its request to the acquirer.

        The terminal's own table forbids this end. The result at the acquirer is then unknown.
        """
        return truth.end in ("TERMINAL_REJECTED", "TERMINAL_CANCELED") and self.acquirer_asked(truth.identity)

    def abort(self, payment: "Payment") -> None:
        """Check an abort that has reached a terminal, and the payment that it stops.

        On a slow network the abort may arrive very late.
        """
        if self.world.late(payment):
            return
        truth, truths = self.truth(payment.identity), self.world.bank.truths.values()
        # If an operator has released the terminal, the abort stops the payment that is open on the terminal at present.
        # posd cannot detect the other payment.
        freed = truth.released and any(other.abort_wanted and other.end is None for other in truths)
        told = f"posd aborted {payment.identity}, and no till requested an abort"
        self.holds(truth.abort_wanted or freed or self.world.plan.probes, told)

    def told(self, identity: str, began: float) -> None:
        """Check that a waiting till receives the end of its payment in time."""
        at, now = self.truth(identity).told_at, self.world.now
        late = now - max(began, now if at is None else at)
        if self.world.felt("no-descriptors") or self.world.felt("crowd"):
            return  # the till waited for admission, or for hundreds of earlier reads
        self.holds(late < 2.0 * self.world.slower, f"the till received the end of {identity} {late:.1f} s late")

    def cut(self, method: str, path: str, life: int, began: float) -> None:
        """Check a call of a till that ended without a reply. A call may end without a reply only when the daemon ends.

        A stopping daemon replies to waiting tills and completes starts.
        """
        alive = self.world.machine.serves(life)
        if self._stopping == life:
            asked = method == "PUT" or path.partition("?")[0].endswith("/outcome")
            alive &= asked and began < self._stopping_since - STOP_SECONDS and not self.world.felt("unwell")
        self.holds(not alive, f"a call of {path} ended without a reply")

    def stream_ended(self, identity: str, life: int, began: float, last: str) -> None:
        """Check that the end of a payment's stream gives a reason, unless the daemon was killed."""
        said = last in LAST_WORDS or began > self._stopping_since - STOP_SECONDS
        alive = self.world.machine.serves(life) and not self.world.felt("unwell")
        self.holds(said or not alive, f"the stream of {identity} ended without a reason, after the message {last!r}")

    def stopped(self) -> None:
        """Check that the daemon has recorded the result of every start in an orderly stop."""
        if self.world.machine.task is not None or self.world.felt("unwell"):
            return
        with self.world.machine.disk.without_faults(), closing(_opened(self.world.machine.database)) as db:
            for (identity,) in db.execute("SELECT client_transaction_id FROM transactions WHERE phase = 'starting'"):
                self.fail(f"an orderly stop of posd left {identity} in phase starting")

    def outcome(self, identity: str, document: dict[str, Any]) -> None:
        """Check an outcome that a till has received."""
        result = document["result"]
        truth = self.truth(identity)
        self.seen("outcome", f"{result} {document['evidence'][-1]['kind']}")
        for item in document["evidence"]:
            self.seen("evidence", item["kind"])
        shown = self.shown.setdefault(identity, [])
        if shown and shown[-1] != result and not document["supersedes"] and not truth.lost:
            self.fail(f"{identity} changed from {shown[-1]} to {result} without `supersedes`")
        shown.append(result)
        for problem in self._of(truth, result):
            self.fail(problem)

    def _of(self, truth: Truth, result: str) -> Iterator[str]:
        """Yield the contradictions between an outcome and the true state."""
        if result in truth.words:
            return
        said = {RESULTS[status] for status in truth.said}
        if result == "approved" and not truth.charged and "approved" not in said:
            yield f"posd shows {truth.identity} as approved, and no terminal reported this"
        if result in ("declined", "rejected", "canceled") and result not in said:
            yield (
                f"posd shows {truth.identity} as {result}, and no terminal reported this"
                f" (reported: {sorted(said)}, end: {truth.end or 'not yet'})"
            )
        if truth.lied:
            return
        if truth.charged and result != "approved":
            yield f"posd shows {truth.identity} as {result}, and the customer was charged"
        if result == "not_started" and truth.end not in ("REFUSED", "GONE") and truth.starts:
            yield f"posd shows {truth.identity} as not_started, and the payment ran (end: {truth.end or 'not yet'})"

    def print_waits(self, identity: str, serial: str) -> None:
        """Check that a till does not wait long for the end of a print job that posd can poll."""
        now, ended = self.world.now, self.world.terminal(serial).printed.get(identity)
        announces = self.world.terminal(
            serial
        ).announces  # posd polls nothing while several devices announce the serial
        if ended is not None and self.printed_before is None and not announces:
            since = max(ended, self.world.free_since(serial))
            told = (
                f"a till waits for print job {identity}, which ended {now - since:.0f} s ago, and posd has not polled"
            )
            self.holds(now - since < PRINT_SECONDS, told)

    def forgotten(self, identity: str) -> None:
        """Record a broken promise: posd does not know an id that it has acknowledged."""
        if not self.truth(identity).lost:
            self.fail(f"posd acknowledged {identity} and has lost it")

    # Checks at the start of each life of the daemon, and at the end of the run.

    def cannot_start(self, error: BaseException | None) -> None:
        """Check that a fault of the disk made the daemon end by itself."""
        if not ({"disk-full", "disk-error"} & {*self.world.now_wrong}):
            self.fail(f"the daemon cannot start: {error!r}")

    def disk(self) -> None:
        """Check that all acknowledged data is on the disk."""
        path = self.world.machine.database
        if not path.exists():
            return
        with self.world.machine.disk.without_faults(), closing(_opened(path)) as db:
            for (message,) in db.execute("PRAGMA integrity_check"):
                self.holds(message == "ok", f"the database is damaged: {message}")
            for identity, count in db.execute(
                "SELECT client_transaction_id, count(*) FROM events"
                " GROUP BY client_transaction_id, event_id, body HAVING count(*) > 1"
            ):
                self.fail(f"the database has an event of {identity} {count} times")
            for identity, count in db.execute(
                "SELECT client_transaction_id, count(*) FROM events GROUP BY 1 HAVING count(*) > ?", (MOST_EVENTS,)
            ):
                self.fail(f"the database keeps {count} events of {identity}")
            removed = {identity for (identity,) in db.execute("SELECT client_transaction_id FROM pruned_transactions")}
            for identity, truth in self.world.bank.truths.items():
                if not (truth.acknowledged or truth.kept) or identity in removed:
                    continue
                kept = {
                    bytes(body)
                    for (body,) in db.execute("SELECT body FROM events WHERE client_transaction_id = ?", (identity,))
                }
                kept |= {
                    bytes(body) for (body,) in db.execute("SELECT body FROM quarantine WHERE subject = ?", (identity,))
                }
                for body in truth.kept:
                    self.holds(body in kept, f"posd refused an event of {identity} and did not keep it: {body[:160]!r}")
                for body in truth.acknowledged:
                    if body not in kept and self.world.habit_of(identity).events != "flood":
                        self.fail(f"posd acknowledged an event of {identity} and has lost it: {body[:160]!r}")

    @property
    def newest_seq(self) -> int:
        """Number of the newest line that was read from the feed of the present database."""
        return self.feed[-1]["seq"] if self.feed and not (self.replaced or self.lost_some) else 0

    def sound(self, path: Path, newest: int) -> None:
        """Check a complete backup. `newest`: the newest change of the feed before the backup."""
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM changes").fetchone()
            self.holds(last >= newest, f"the backup ends with change {last}, and the feed already had change {newest}")
            for (message,) in db.execute("PRAGMA integrity_check"):
                self.holds(message == "ok", f"the backup is damaged: {message}")

    def gone_back(self, before: Path, after: Path) -> None:
        """Record that a snapshot replaces a database. Records that the snapshot lacks are lost. Their ids are kept."""
        self.printed_before = set(self.world.printed)
        self._went_back = self.world.now
        with self.world.machine.disk.without_faults():
            known, kept, removed = _stored(before)
        ended, kept_there, removed_there = _stored(after, "WHERE phase = 'final'")
        for truth in self.world.bank.truths.values():
            if truth.identity in removed_there:
                continue  # retention removed the payment before the snapshot
            truth.lost |= truth.identity in known | removed and truth.identity not in ended
            if truth.identity in removed:
                kept |= {*truth.acknowledged, *truth.kept}
            left = [body for body in truth.acknowledged if body in kept_there or body not in kept]
            self.lost_some |= len(left) < len(truth.acknowledged)
            truth.acknowledged = left
            if not any(_status(body) in FINALS for body in left):
                truth.told_at = None
            truth.kept = [body for body in truth.kept if body in kept_there or body not in kept]

    def installed(self) -> None:
        """Record that the database of an older posd is installed."""
        with closing(_opened(self.world.machine.database)) as db:
            self.old = dict(db.execute("SELECT client_transaction_id, phase FROM transactions"))

    def line(self, line: "Line") -> None:
        """Check a log line."""
        if line.event in FAULTS:
            self.fail(f"the log has {line.event}: {json.dumps(line.fields, default=str)[:900]}")
        if line.event == "listener.refused":
            kind = (line.life, line.fields["kind"])
            told = f"the log repeats {kind[1]} after only {line.at - self._refused.get(kind, 0.0):.1f} s"
            self.holds(line.at - self._refused.get(kind, 0.0) > 59.0 or self._stopping == line.life, told)
            self._refused[kind] = line.at
        if line.event == "posd.stopping":
            self._stopping, self._stopping_since = line.life, line.at
        if line.level in ("warning", "error"):
            self.seen("log", line.event)

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

    def change(self, change: dict[str, Any]) -> None:
        """Check a change in the feed."""
        expected = self.feed[-1]["seq"] + 1 if self.feed else change["seq"]
        told = f"the feed jumps from line {expected - 1} to line {change['seq']}"
        self.holds(change["seq"] in (expected, self.first_seq) or change["seq"] < self.first_seq, told)
        told = change.get("outcome", {}).get("result")
        gone = told is None and self.world.plan.retention_days > 0
        if change["kind"] == "transaction" and told != change["result"] and not gone:
            self.fail(f"the feed has result {change['result']} but outcome {told} for {change['id']}")
        self.feed.append(change)
        if change["kind"] == "transaction":
            self._told.add((change["id"], change["reason"]))
            self._moved(change)

    def _moved(self, change: dict[str, Any]) -> None:
        """Check that the state of a payment does not go back, and that the terminal's first final result stays."""
        identity, result = change["id"], change["result"]
        if self.reading_anew or change["reason"] == "taken_over":
            # A restore takes over only later changes of the replaced database.
            self.newest.pop(identity, None)
            self.stated.pop(identity, None)
        before, self.newest[identity] = self.newest.get(identity), change
        if before is not None and before["status"] is not None:
            told = f"the status of {identity} went back from {before['status']} to {change['status']}"
            self.holds(_rank(change["status"]) >= _rank(before["status"]), told)
        if (stated := self.stated.get(identity)) is not None:
            self.holds(result == stated, f"{identity} changed to {result} after the terminal reported {stated}")
        elif result is not None and change["status"] in FINALS:
            self.stated[identity] = result

    def nothing_left(self, terminals: list[dict[str, Any]], metrics: str, known: list[dict[str, Any]]) -> None:
        """Check at the end of the run that no finished payment holds a terminal, and no connection is open."""
        open_ones = {item["client_transaction_id"] for item in known if item["phase"] != "final"}
        failing = any(fault.kind in ("disk-full", "disk-error") for fault in self.world.plan.faults)
        for terminal in terminals:
            held = terminal["transaction"]
            told = f"the ended payment {held} still holds terminal {terminal['serial']}"
            # after a fault of the disk posd repeats the write for a while
            self.holds(failing or held is None or held in open_ones, told)
        for line in metrics.splitlines():
            if line.startswith("posd_connections{"):
                name, _, count = line.rpartition(" ")
                self.holds(int(count) <= 2, f"connections are open after the last call: {name} {count}")

    def end(self, transactions: list[dict[str, Any]]) -> None:
        """Check the end of the run. All faults have ended long ago, and no message is under way."""
        known = {item["client_transaction_id"]: item for item in transactions}
        for identity, truth in self.world.bank.truths.items():
            document = known.get(identity)
            if truth.starts and document is None:
                if self.world.plan.retention_days:
                    self._removed(truth)
                else:
                    self.fail(f"posd sent {identity} and has lost it")
            if document is None:
                continue
            self.document(document)
            attention = {item["code"] for item in document["attention"]}
            self._feed_ends(document, attention)
            self._steps_told(truth)
            if document["phase"] != "final":
                self._open(truth, document, attention)
                continue
            result = document["outcome"]["result"]
            self._suspicious(document, attention)
            wrong = [*self._of(truth, result)]
            if not wrong and not truth.lied and truth.charged != (result == "approved") and result not in truth.words:
                wrong = [f"posd shows {identity} as {result}, and the acquirer has {truth.end}"]
            finals = {RESULTS[status] for status in map(_status, truth.acknowledged) if status in FINALS}
            if finals and not truth.lied and result not in finals:
                wrong.append(f"posd shows {identity} as {result}, and has acknowledged {sorted(finals)}")
            if finals and not truth.lied and document["outcome"]["evidence"][-1]["kind"] == "operator":
                wrong.append(
                    f"an operator's decision stands for {identity}, and the terminal has reported {sorted(finals)}"
                )
            for problem in wrong:
                self.fail(problem)
        for identity, phase in self.old.items():
            now = known[identity]["phase"] if identity in known else "gone"
            kept = now == phase if phase == "final" else now not in ("final", "gone")
            told = f"{identity} changed from phase {phase} of the older posd to {now}"
            self.holds(kept or (now == "gone" and self.world.plan.retention_days > 0), told)
        for identity in self.world.refused:
            self.holds(identity not in known, f"posd refused {identity} and recorded it")
        for till in self.world.tills:
            for basket in till.baskets:
                self._basket(basket, known)

    def _suspicious(self, document: dict[str, Any], attention: set[str]) -> None:
        """Check that an approval with suspicious content has its attention."""
        identity = document["client_transaction_id"]
        code = SUSPICIOUS.get(self.world.habit_of(identity).events)
        if code and document["outcome"]["status"] == "APPROVAL" and not self.truth(identity).lost:
            self.holds(code in attention, f"posd shows the approval of {identity} without the attention {code}")

    def _feed_ends(self, document: dict[str, Any], attention: set[str]) -> None:
        """Check that the newest line of the feed about a payment shows its state."""
        identity, outcome = document["client_transaction_id"], document["outcome"]
        stands = (document["phase"], document["status"], outcome and outcome["result"], sorted(attention))
        if (last := self.newest.get(identity)) is None:
            if self.first_seq and self.world.plan.retention_days:
                return  # retention removed the line before the feed was read again
            self.fail(f"the feed has no line for {identity}")
        else:
            told = (last["phase"], last["status"], last["result"], sorted(last["attention"]))
            self.holds(told == stands, f"the feed's last line of {identity} has {told}, and posd shows {stands}")

    def _steps_told(self, truth: Truth) -> None:
        """Check that each acknowledged event has its line in the feed."""
        if self.first_seq or truth.lost or self.world.plan.retention_days:
            return  # the feed was not read completely
        if any(truth.identity in terminal.found for terminal in self.world.terminals):
            return  # after a search an event may change nothing
        for event in truth.acknowledged:
            status = _status(event)
            told = f"the feed has no line for the acknowledged {status} of {truth.identity}"
            self.holds((truth.identity, f"event:{status}") in self._told, told)

    def _removed(self, truth: Truth) -> None:
        """Check that a missing payment is older than the configured days of retention."""
        if not truth.lost:
            self.removed.append(truth.identity)
        newest = max(moment for moment in (truth.began, truth.at) if moment is not None)
        kept = timedelta(days=self.world.plan.retention_days)
        age = self.world.machine.clocks.true - newest
        self.holds(age >= kept, f"retention removed {truth.identity} too early, after {age}")
        self.seen("removed", str(truth.end))

    def removed_again(self, identity: str, reply: Reply) -> None:
        """Check a repeated start of a payment that retention has removed."""
        known = reply.status >= 400 and reply.json["code"] == "pruned"
        if not known:
            self.fail(f"posd replied {reply.status} to a start of the removed {identity}: {reply.body[:200]!r}")
            return
        for problem in self._of(self.truth(identity), reply.json["result"]):
            self.fail(f"{problem} (retention has removed the payment)")

    def healthy(self, document: dict[str, Any]) -> None:
        """Check at the end of the run that the certificate is valid and was renewed in time."""
        said = document["checks"]["certificate"]
        self.seen("certificate", said["status"])
        self.holds(said["status"] == "ok", f"the health document reports the certificate as {said}")

    def _open(self, truth: Truth, document: dict[str, Any], attention: set[str]) -> None:
        """Check that posd reports a payment that is open at the end of the run."""
        identity = truth.identity
        # The wall clock may have been ahead at the start of the payment. A young payment waits, since the customer may
        # still be there.
        young = timedelta() <= self.world.machine.clocks.now() - parse_iso(document["created_at"]) < LONG_WAIT
        if document["next_step"] != "ask_person" and not document["released"] and not young:
            told = f"{identity} is open without a reason: {document['phase']} {document['status']} {sorted(attention)}"
            self.fail(told)
        habit = self.world.habit_of(identity)
        # If several devices may be the terminal, posd asks no device until an operator has decided.
        if truth.end in FINALS and habit.search == "usual" and not truth.lied and "identity_conflict" not in attention:
            told = f"{document['phase']} {document['status']}, last search {document['last_search']}"
            self.fail(f"{identity} is open, although a search would find its end {truth.end}: {told}")

    def _basket(self, basket: "Basket", known: dict[str, Any]) -> None:
        """Check that the customer of a paid sale is charged once, and the customer of an unpaid sale is not charged."""
        if basket.sale.manner == "print" or basket.belief is None:
            if basket.belief is None:
                self.fail(f"sale {basket.sale.number} never ended")
            return
        self._chain(basket, known)
        truths = [self.truth(identity) for identity in basket.ids]
        if any(truth.lied or truth.words for truth in truths):
            return
        charges = sum(truth.charged for truth in truths)
        if basket.belief == "paid" and charges != 1:
            self.fail(f"the till has sale {basket.sale.number} as paid, and the customer was charged {charges} times")
        if basket.belief == "unpaid" and charges:
            self.fail(f"the till has sale {basket.sale.number} as unpaid, and the customer was charged")
        if charges > 1:
            self.fail(f"the customer was charged {charges} times for sale {basket.sale.number}")

    def _chain(self, basket: "Basket", known: dict[str, Any]) -> None:
        """Check that the operations after a payment agree with the data of the till."""
        for link in basket.links[1:]:
            document = known.get(link.identity)
            truth, original, base = self.truth(link.identity), link.original, link.base
            assert original is not None
            if truth.lost or document is None or base is None or base.identity not in known:
                continue
            if any(self.truth(item.identity).lost for item in (base, original)):
                continue  # a restore lost the reference or the original
            named = document["transaction_reference"] if link.by_reference else document["original"]
            wanted = original.reference if link.by_reference else original.identity
            told = f"posd shows {named} as the original of {link.identity}, and the till sent {wanted}"
            self.holds(named == wanted, told)
            derived = known[base.identity]["derived"]
            self.holds(link.identity in derived, f"`derived` of {base.identity} lacks {link.identity}: {derived}")
            if truth.starts:
                self.holds(truth.kind == link.kind, f"posd sent the {link.kind} {link.identity} as {truth.kind}")
                self._reference(link, truth)
                self._reversal(document, truth)

    def _reference(self, link: "Link", truth: Truth) -> None:
        """Check that posd sent the reference of the original, or of the newest re-authorization."""
        bank, base = self.world.bank, truth.base
        if base is None or truth.original is None:
            return
        chain = [base, *bank.under(base)]
        if any(other.lied or other.words or other.lost for other in chain):
            return
        if link.by_reference:
            wanted = bank.of(link.original.identity) if link.original is not None else base
        elif link.kind in ("capture", "void"):
            before = chain[: chain.index(truth)]
            wanted = [other for other in before if other is base or (other.kind == "re-auth" and other.charged)][-1]
        else:
            wanted = base
        told = f"posd sent {link.identity} under the reference of {truth.original.identity}"
        self.holds(truth.original is wanted, told)

    def _reversal(self, document: dict[str, Any], truth: Truth) -> None:
        """Check whether posd shows a void as a cancellation on the day of its original, and as a refund later."""
        outcome, base = document["outcome"], truth.base
        if truth.kind != "void" or outcome is None or outcome["result"] != "approved" or base is None:
            return
        if truth.at is None or base.at is None or any(item.words or item.lied for item in (truth, base)):
            return
        zone = ZoneInfo(self.world.plan.timezone)
        same_day = truth.at.astimezone(zone).date() == base.at.astimezone(zone).date()
        wanted = "cancellation" if same_day else "refund"
        self.seen("reversal", wanted)
        told = f"posd shows the void {truth.identity} as a {outcome['reversal']} instead of a {wanted}"
        self.holds(outcome["reversal"] in (wanted, None), told)


def _rank(status: str | None) -> int:
    """Return the position of a state in the lifecycle. All final states have the same position."""
    steps = (None, "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED")
    return steps.index(status) if status in steps else len(steps)


def _status(event: bytes) -> str:
    """Return the status of an event. The event may be damaged."""
    return _member(event, "status")


def _member(event: bytes, name: str) -> str:
    """Return a member of an event as text, or "" without such a member."""
    return event.partition(b'"%b": "' % name.encode())[2].partition(b'"')[0].decode()


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database for reading, and leave its WAL unchanged.

    The last writing connection would copy the WAL into the database file when it closes. The copy would repair the
    effect of a fault.
    """
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def _stored(path: Path, where: str = "") -> tuple[set[str], set[bytes], set[str]]:
    """Return three sets: the ids of these payments, all stored bodies, and the ids that retention has removed."""
    with closing(_opened(path)) as db:
        ids = {identity for (identity,) in db.execute(f"SELECT client_transaction_id FROM transactions {where}")}
        bodies = db.execute("SELECT body FROM events UNION ALL SELECT body FROM quarantine")
        removed = {identity for (identity,) in db.execute("SELECT client_transaction_id FROM pruned_transactions")}
        return ids, {bytes(body) for (body,) in bodies}, removed
