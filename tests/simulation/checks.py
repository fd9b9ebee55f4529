"""Checks of the promises against the acquirer's records, at each step."""

import asyncio
import json
import math
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.rig.events import FINALS
from tests.rig.streams import Reply
from tests.simulation.bank import Truth
from tests.simulation.ends import EndChecks, member, rank, status_of

if TYPE_CHECKING:
    from tests.simulation.machine import Line
    from tests.simulation.sending import Payment
    from tests.simulation.till import Basket
    from tests.simulation.world import World

#: Log events that always show a fault.
FAULTS: Final = frozenset({"posd.internal_error", "posd.crashed", "posd.library", "log.unlisted"})
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
#: Maximum time until a till is told that posd cannot use events of its payment, in seconds.
UNUSABLE_SECONDS: Final = 15.0
#: A callback URL with its token.
TOKEN: Final = re.compile(rb"webhooks/transactions/[^/]*/(?!\[redacted\])")
#: Maximum time until an operator is asked, in seconds.
SHOWN_SECONDS: Final = 2400.0
#: Maximum time until a till gets the end of a print job, in seconds. The time is the longest pause between two polls,
#: plus a margin.
PRINT_SECONDS: Final = 90.0


def identity_of(path: str) -> str:
    """Return the id in the path of a call."""
    return path.partition("?")[0].split("/")[3]


class Checks(EndChecks):
    """The checks of all promises."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._calls = 0
        #: Id -> number of the newest call that starts it, and of the newest call whose reply is that it never started.
        self._start_calls: dict[str, int] = {}
        self._denied_calls: dict[str, int] = {}
        #: Id -> true time until which a till permits the start, and the error of the clock at the till's request.
        self.deadlines: dict[str, tuple[datetime, timedelta]] = {}
        #: Id -> time of the first event that posd could not use.
        self.unusable: dict[str, float] = {}
        #: Id -> results that posd has shown for this id, in order.
        self.shown: dict[str, list[str]] = {}
        #: (id, reason) of each line of the stream about a payment.
        self._streamed: set[tuple[str, str]] = set()
        #: (life, kind) -> time of the last log line about refused strangers.
        self._refused: dict[tuple[int, str], float] = {}
        self._stopping, self._stopping_since = 0, 0.0

    # Calls to terminals.

    def start(self, truth: Truth) -> None:
        """Check a start that has reached a terminal."""
        self.world.start_came.set()
        identity = truth.identity
        self.holds(len(truth.starts) == 1, f"posd sent {identity} {len(truth.starts)} times")
        later = self._denied_calls.get(identity, 0) < self._start_calls.get(identity, math.inf)
        self.holds(later, f"posd said that {identity} never started, and then sent it")
        clocks = self.world.machine.clocks
        until, error = self.deadlines.get(identity, (clocks.true, clocks.error))
        late = (clocks.true - until).total_seconds()
        told = f"posd sent {identity} {late:.1f} s after the till's not_after"
        held = max(self.world.last(effect, truth.starts[-1]) for effect in ("holds", "stops-one"))
        slow = self.world.now - held < RECOVERY_SECONDS
        self.holds(late < self.world.slower or error != clocks.error or slow, told)
        if (base := truth.base) is not None:
            wrong = sorted(self.world.bank.wrong(base, truth))
            unsure = any(other.doubtful for other in (base, *self.world.bank.under(base)))
            told = f"posd sent {truth.kind} {truth.identity} of {truth.amount}, and the rules refuse it: {wrong}"
            self.holds(not wrong or unsure, told)

    def busy(self, running: "Payment", identity: str) -> None:
        """Check a start that reached a busy terminal. posd must have had evidence that the terminal was free."""
        truth = self.truth(running.identity)
        known = truth.doubtful or truth.released or truth.refused
        self.holds(known, f"posd sent {identity} to {running.serial} while {running.identity} runs there")

    def abort(self, payment: "Payment") -> None:
        """Check an abort that has reached a terminal, and the payment that it stops.

        On a slow network the abort may arrive very late.
        """
        truth, truths = self.truth(payment.identity), self.world.bank.truths.values()
        # If an operator has released the terminal, the abort stops the payment that is open on the terminal at present.
        # posd cannot detect the other payment.
        freed = truth.released and any(other.abort_wanted and other.end is None for other in truths)
        right = truth.abort_wanted or freed or self.world.plan.probes or self.world.late(payment)
        self.holds(right, f"posd aborted {payment.identity}, and no till requested an abort")

    def print_start(self, identity: str) -> None:
        """Check a print job that has reached a terminal."""
        self.world.printed[identity] = self.world.printed.get(identity, 0) + 1
        again = self.printed_before is not None and identity in self.printed_before
        self.holds(self.world.printed[identity] == 1 or again, f"posd sent print job {identity} twice")

    # Calls of terminals.

    def event(self, payment: "Payment", event: bytes, reply: Reply, began: float) -> None:
        """Check the reply to an event that was sent at `began`."""
        identity, truth, world, status = payment.identity, self.truth(payment.identity), self.world, status_of(event)
        self.seen("event-answer", str(reply.status))
        if reply.status in (400, 403):
            if began >= self.went_back:  # an earlier event may be in the replaced database only
                truth.kept.append(event)
            self.unusable.setdefault(identity, world.now)
            good = payment.habit.events != "broken" and FOREIGN not in event
            self.holds(not good, f"posd refused a good event of {identity}: {reply.status} {reply.body[:300]!r}")
        if not 200 <= reply.status < 300:
            known = reply.status in (400, 403, 413, 429, 503)
            self.holds(known, f"posd replied {reply.status} to an event of {identity}: {reply.body[:200]!r}")
            return
        if began >= self.went_back:
            truth.acknowledged.append(event)
        if truth.told_at is None and status in FINALS:
            truth.told_at = world.now
        if truth.told_at is None:
            self._look_for_gap(payment, event, began)
        if world.follower is not None and not world.plan.retention_days:
            world.loop.call_later(STREAM_SECONDS, self._followed, payment, status, world.now)

    def _followed(self, payment: "Payment", status: str, since: float) -> None:
        """Check that the follower of the feed has received the change of an acknowledged event."""
        world, identity = self.world, payment.identity
        if world.follower is None or world.follower.since > since or identity in world.terminal(payment.serial).found:
            return  # a search found the payment, so the event may change nothing
        if world.felt("crowd"):
            return  # the follower is still reading hundreds of earlier changes
        told = (identity, f"event:{status}") in self._streamed
        quiet = world.free_since("") + RECOVERY_SECONDS < since and not self.truth(identity).lost
        self.holds(told or not quiet, f"the stream of the feed has no line for {status} of {identity}")

    def _look_for_gap(self, payment: "Payment", event: bytes, began: float) -> None:
        """Check that posd searches after it acknowledged an event whose predecessor is missing.

        The event was sent at `began`. The search can reach the terminal before the reply to the event.
        """
        truth, world = self.truth(payment.identity), self.world
        before, terminal = member(event, "previous_status"), world.terminal(payment.serial)
        known = {status_of(other) for other in truth.acknowledged}
        late = any(rank(status) > rank(status_of(event)) for status in known)
        if late or truth.said or before in ("", "TERMINAL_ACKNOWLEDGED", *FINALS, *known) or terminal.announces:
            return
        if payment.identity in terminal.found or payment.habit.extra == "after-final":
            return  # a search has found the event, or the step is out of order and nothing is missing
        self.seen("gap", before)
        world.spawn("checks", self._gap(payment, before, began), "gap")

    async def _gap(self, payment: "Payment", missing: str, since: float) -> None:
        truth, world, searched = self.truth(payment.identity), self.world, self.world.terminal(payment.serial).searched
        for _ in range(GAP_SEARCHES + 1):
            await asyncio.sleep(GAP_SECONDS + world.plan.reply_timeout)
            if missing in map(status_of, truth.acknowledged):
                return  # the missing event has arrived
            asked = searched.get(payment.identity, 0.0) >= since
            if asked or world.now - max(searched.values(), default=0.0) >= world.plan.reply_timeout:
                break  # otherwise another search is under way
        over = truth.said or truth.lost or truth.words or world.free_since(payment.serial) >= since
        self.holds(bool(over) or asked, f"posd did not search for a missing event of {payment.identity}")

    def intruder(self, identity: str, kind: str, reply: Reply) -> None:
        """Check the reply to a body that is not an event of a payment."""
        wanted = {"other-payment": 400, "too-large": 413}.get(kind, 403)
        self.seen("intruder", f"{kind} {reply.status}")
        if reply.status == wanted and kind in ("other-payment", "other-merchant", "other-terminal"):
            self.unusable.setdefault(identity, self.world.now)
        told = f"posd replied {reply.status} to a forged event of {identity} ({kind})"
        self.holds(reply.status in (wanted, 503), told)

    def delivered(self, serial: str, began: float, reply: Reply | None) -> None:
        """Check that a terminal's request gets a reply in time, unless a fault prevents the reply."""
        if reply is None or reply.status == 503 or self.world.now - began >= ANSWER_SECONDS:
            self._slow(f"a call of {serial}", began, reply, self.world.free_since(serial))

    def answered(self, path: str, began: float, seconds: float, reply: Reply | None) -> None:
        """Check that a till's call gets a reply in time, unless a fault prevents the reply.

        `reply`: None without a reply. `seconds`: the longest permitted time.
        """
        if self.world.now - began >= seconds + ANSWER_SECONDS:
            free = max(self.world.free_since(terminal.serial) for terminal in self.world.terminals)
            self._slow(path, began, reply, free)

    def _slow(self, what: str, began: float, reply: Reply | None, free: float) -> None:
        said = "did not reply" if reply is None else f"replied {reply.status}"
        told = f"posd {said} to {what} in {self.world.now - began:.1f} s, and no fault explains that"
        self.holds(free + RECOVERY_SECONDS > began, told)

    # Calls of tills and of the operator.

    def call(self, method: str, path: str) -> int:
        """Return the number of a call of a till or an operator that begins now."""
        self._calls += 1
        if method == "PUT":
            self._start_calls[identity_of(path)] = self._calls
        return self._calls

    def reply(self, call: int, path: str, reply: Reply) -> None:
        """Check the reply to a call."""
        if reply.status >= 400:
            self.seen("problem", reply.json["code"])
            if reply.json.get("never_started"):
                identity = identity_of(path)
                self._denied_calls[identity] = max(call, self._denied_calls.get(identity, 0))
                told = f"posd says that {identity} never started, and sent it"
                self.holds(not self.truth(identity).starts, told)
        self.holds(TOKEN.search(reply.body) is None, f"the reply to {path} has a callback token")
        self.holds(reply.status != 500, f"posd replied 500 to a call: {reply.body[:300]!r}")

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
        return "APPROVAL_REQUESTED" in map(status_of, self.truth(identity).acknowledged)

    def waits(self, identity: str, serial: str, document: dict[str, Any]) -> None:
        """Check that a till does not wait long after the end of a payment, unless posd asks an operator."""
        truth, world = self.truth(identity), self.world
        unseen = world.now - self.unusable.get(identity, world.now) > UNUSABLE_SECONDS and not truth.lost
        if unseen and document["phase"] == "active" and identity not in world.terminal(serial).found:
            told = f"posd shows {document['next_step']} for {identity}, and cannot use its events"
            self.holds(document["next_step"] == "ask_person", told)
        if truth.ended is None or world.now - truth.ended < WAIT_SECONDS or document["released"]:
            return
        over = world.now - max(truth.ended, world.free_since(serial))
        told = f"a till still waits for {identity}, which ended as {truth.end} long ago, and"
        shown = over < SHOWN_SECONDS or document["next_step"] == "ask_person"
        self.holds(shown, f"{told} posd asks no operator")
        found = truth.end in FINALS and world.habit_of(identity).search in ("usual", "late-index") and not truth.lied
        conflict = any(item["code"] == "identity_conflict" for item in document["attention"])
        self.holds(over < WAIT_SECONDS or not found or conflict, f"{told} no search found the end")

    def told(self, identity: str, began: float) -> None:
        """Check that a waiting till receives the end of its payment in time."""
        at, now = self.truth(identity).told_at, self.world.now
        late = now - max(began, now if at is None else at)
        # during these faults the till waits for admission, or for hundreds of earlier reads
        delayed = self.world.felt("no-descriptors") or self.world.felt("crowd")
        in_time = delayed or late < 2.0 * self.world.slower
        self.holds(in_time, f"the till received the end of {identity} {late:.1f} s late")

    def outcome(self, identity: str, document: dict[str, Any]) -> None:
        """Check an outcome that a till has received."""
        result, truth = document["result"], self.truth(identity)
        self.seen("outcome", f"{result} {document['evidence'][-1]['kind']}")
        self.seen("evidence", *(item["kind"] for item in document["evidence"]))
        shown = self.shown.setdefault(identity, [])
        if shown and shown[-1] != result and not document["supersedes"] and not truth.lost:
            self.fail(f"{identity} changed from {shown[-1]} to {result} without `supersedes`")
        shown.append(result)
        self.fail(*self.of(truth, result))

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

    def streamed(self, change: dict[str, Any], before: int) -> None:
        """Check a change on the stream of the feed. `before`: number of the previous change, 0 if unknown."""
        # the first change of another database has no predecessor
        follows = before in (0, change["seq"] - 1) or change["seq"] == self.first_seq or self.lost_some or self.replaced
        self.holds(follows, f"the stream of the feed jumps from line {before} to line {change['seq']}")
        self._streamed.add((change["id"], change["reason"]))

    def print_waits(self, identity: str, serial: str) -> None:
        """Check that a till does not wait long for the end of a print job that posd can poll."""
        terminal, now = self.world.terminal(serial), self.world.now
        ended = terminal.printed.get(identity)
        # posd polls nothing while several devices announce the serial
        if ended is None or self.printed_before is not None or terminal.announces:
            return
        told = f"a till waits for print job {identity}, which ended {now - ended:.0f} s ago, and posd has not polled"
        self.holds(now - max(ended, self.world.free_since(serial)) < PRINT_SECONDS, told)

    def forgotten(self, identity: str, *, printed: bool = False) -> None:
        """Check that posd lost an id that it has acknowledged only with the database."""
        lost = self.printed_before is not None if printed else self.truth(identity).lost
        self.holds(lost, f"posd acknowledged {'print job ' * printed}{identity} and has lost it")

    # The daemon.

    def cannot_start(self, error: BaseException | None) -> None:
        """Check that a fault of the disk made the daemon end by itself."""
        failing = {"disk-full", "disk-error"} & {*self.world.now_wrong}
        self.holds(bool(failing), f"the daemon cannot start: {error!r}")

    def line(self, line: "Line") -> None:
        """Check a log line."""
        if line.event in FAULTS:
            self.fail(f"the log has {line.event}: {json.dumps(line.fields, default=str)[:900]}")
        if line.event == "listener.refused":
            kind = (line.life, line.fields["kind"])
            pause = line.at - self._refused.get(kind, 0.0)
            rare = pause > 59.0 or self._stopping == line.life
            self.holds(rare, f"the log repeats {kind[1]} after only {pause:.1f} s")
            self._refused[kind] = line.at
        if line.event == "posd.stopping":
            self._stopping, self._stopping_since = line.life, line.at
        if line.level in ("warning", "error"):
            self.seen("log", line.event)
