"""Deliberate faults of the product. Each is a mistake that a programmer could make, and the simulation must find it.

A break changes the product's source in this process only, for one run: a function's text is changed and compiled again,
so the table shows the mistake itself. A change whose text is no longer in the product raises an error, so the table
follows the product.
"""

import builtins
import dis
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

from posd.api import certificate
from posd.base import json_types
from posd.clock import rules
from posd.httpd import admission, server
from posd.httpd import connection as http_connection
from posd.logs.writer import LogWriter
from posd.payments import (
    abort,
    accounting,
    answers,
    chains,
    decide,
    inbox,
    lifecycle,
    operations,
    outcomes,
    reconcile,
    record,
    schedule,
    start,
    transitions,
)
from posd.printing import poll
from posd.printing import start as print_start
from posd.records import callback_urls
from posd.records import inbox as callbacks
from posd.records import start as starting
from posd.storage import backup, batch, changes, connection, store, writer
from posd.terminals import attempt, identity
from posd.upkeep import restore, restore_guard, retention


@dataclass(frozen=True)
class Change:
    """A change of one function: a part of its source, and the replacement."""

    function: Any
    old: str
    new: str


@contextmanager
def _changed(function: FunctionType, changes: Sequence[Change]) -> Iterator[None]:
    """Replace a function for the block, also in the modules that have imported it. Raise ValueError if that is
    impossible.
    """
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        if source.count(change.old) != 1:
            raise ValueError(f"{function.__qualname__} does not have once: {change.old!r}")
        source = source.replace(change.old, change.new)
    names: dict[str, Any] = {}
    exec(compile(source, inspect.getfile(function), "exec"), function.__globals__, names)
    before, broken = function.__code__, _plain(names[function.__name__]).__code__
    if unknown := {
        name for name in _globals(broken) if name not in function.__globals__ and not hasattr(builtins, name)
    }:
        raise ValueError(f"{function.__qualname__} does not know {unknown}")
    function.__code__ = broken
    try:
        yield
    finally:
        function.__code__ = before


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, and those in it, take from their module."""
    yield from (item.argval for item in dis.get_instructions(code) if item.opname == "LOAD_GLOBAL")
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _globals(item)


def _plain(function: Any) -> FunctionType:
    """Return the function in a property, a method or a decorator."""
    if isinstance(function, property):
        function = function.fget
    function = inspect.unwrap(getattr(function, "__func__", function))
    assert isinstance(function, FunctionType), function
    return function


class Break:
    """One mistake: its name, its part of the product, its effect, and the changes."""

    def __init__(self, name: str, part: str, says: str, *changes: Change) -> None:
        self.name, self.part, self.says, self.changes = name, part, says, changes


_ALL: Final = (
    # The writer.
    Break(
        "answer-before-commit",
        "writer",
        "Callers are answered when their functions have run, before the COMMIT is on disk.",
        Change(
            writer.DatabaseWriter._commit_in_place,
            "written = await run_on_db_thread(self._connection, batch.commit)",
            "run_on_db_thread(self._connection, batch.commit)\n"
            "    written = BatchResult(batch._results, batch._unit.changes, anything=True)",
        ),
    ),
    Break(
        "failed-sync-ignored",
        "writer",
        "A COMMIT that fails is taken for one that went well.",
        Change(
            batch.WriteBatch.commit,
            "return BatchResult([outcome] * len(self._functions), distrusted=broken(error))",
            "return BatchResult(self._results, self._unit.changes, anything=wrote, distrusted=broken(error))",
        ),
    ),
    Break(
        "publish-before-commit",
        "writer",
        "Those who wait hear of a change before its COMMIT, look, and find nothing new.",
        Change(
            writer.DatabaseWriter._commit_in_place,
            "written = await run_on_db_thread",
            "self._publish(batch._unit.changes)\n    written = await run_on_db_thread",
        ),
        Change(writer.DatabaseWriter._commit, "self._publish(written.changes)", "pass"),
    ),
    Break(
        "lost-wake-up",
        "writer",
        "A function that is handed over during a COMMIT waits until another one comes.",
        Change(writer.DatabaseWriter._run, "if not self._waiting:\n            self._wake.clear()\n", "pass\n"),
        Change(
            writer.DatabaseWriter._run,
            "await self._commit(batch)\n",
            "await self._commit(batch)\n        self._wake.clear()\n",
        ),
    ),
    # The database file.
    Break(
        "log-not-written-again",
        "storage",
        "What a log has that an earlier process left is taken for synced.",
        Change(
            connection.connect_again,
            'if files.rewrite_and_fsync(path.with_name(f"{path.name}-wal")) and not at_start:',
            "if not at_start:",
        ),
    ),
    Break(
        "synchronous-normal",
        "storage",
        "A COMMIT is not synced (PRAGMA synchronous = NORMAL).",
        Change(connection.connect_writer, '"synchronous = FULL"', '"synchronous = NORMAL"'),
    ),
    Break(
        "synchronous-off",
        "storage",
        "Nothing is synced (PRAGMA synchronous = OFF).",
        Change(connection.connect_writer, '"synchronous = FULL"', '"synchronous = OFF"'),
    ),
    Break(
        "journal-in-memory",
        "storage",
        "The rollback journal is kept in memory in place of a write-ahead log.",
        Change(connection.connect_writer, '"journal_mode = WAL"', '"journal_mode = MEMORY"'),
    ),
    Break(
        "stale-reads",
        "storage",
        "A reading connection stays in the state that it saw first.",
        Change(store._snapshot, 'db.execute("BEGIN")', 'db.in_transaction or db.execute("BEGIN")'),
        Change(store._snapshot, 'db.execute("ROLLBACK")', "pass"),
    ),
    # The start of a payment.
    Break(
        "sent-before-intent",
        "start",
        "The request goes out while its intent is still being committed.",
        Change(
            start.Payments._run,
            "transaction, request = await self._intend(draft, way)",
            "from asyncio import ensure_future\n"
            "            early = ensure_future(self._send(draft, self._request(draft, way), way.until))\n"
            "            transaction, request = await self._intend(draft, way)",
        ),
        Change(start.Payments._run, "await self._send(transaction, request, way.until)", "await early"),
    ),
    Break(
        "sent-twice",
        "start",
        "A request whose reply is lost is sent again.",
        Change(
            start.Payments._send,
            'crash_point("start.replied")',
            "if not isinstance(attempt, Replied):\n        "
            "attempt = await terminal.call(request, written=partial(_written, transaction), connected=connected)",
        ),
    ),
    Break(
        "intent-forgotten",
        "recovery",
        "What was `starting` at a crash is removed, so that the till may start it anew.",
        Change(
            record.recover,
            "starting = found.phase is Phase.STARTING\n",
            "starting = False\n"
            "            if found.phase is Phase.STARTING:\n"
            "                for table in ('journal', 'leases', 'transactions'):\n"
            "                    unit.db.execute(f'DELETE FROM {table} WHERE client_transaction_id = ?',"
            " (found.client_transaction_id,))\n"
            "                continue\n",
        ),
    ),
    Break(
        "interrupted-is-not-started",
        "recovery",
        "What was `starting` at a crash is taken for not sent.",
        Change(
            record.recover,
            "def work(unit: WriteTransaction)",
            "from posd.payments.entries import Attempted\n"
            "    from posd.terminals.attempt import NotSent\n\n"
            "    def work(unit: WriteTransaction)",
        ),
        Change(record.recover, "Interrupted()", 'Attempted(NotSent("posd was interrupted"))'),
    ),
    Break(
        "open-not-taken-over",
        "recovery",
        "What was open at a crash is not asked for after it.",
        Change(record.recover, "return [*taken_over, *to_ask_once, *closed]", "return [*to_ask_once, *closed]"),
    ),
    Break(
        "lease-not-freed",
        "start",
        "A payment that has ended goes on holding its terminal.",
        Change(record.free_if_ended, "transaction.phase is Phase.FINAL and", "False and"),
    ),
    Break(
        "lease-freed-early",
        "start",
        "A terminal is freed at the final while an abort of that payment is still on its way.",
        Change(
            record.free_if_ended,
            " and not outstanding.of(transaction.client_transaction_id)",
            "",
        ),
    ),
    Break(
        "busy-not-checked",
        "start",
        "A second payment is started on a terminal that another one holds.",
        Change(start.Payments._record_intent, "chains.refuse_busy(unit, transaction, self._outstanding)", "None"),
    ),
    Break(
        "sale-not-checked",
        "start",
        "A second payment of one sale is started on another terminal.",
        Change(start.Payments._record_intent, "chains.refuse_sale(unit, transaction, chain)", "None"),
    ),
    Break(
        "id-reused",
        "start",
        "A known id with another amount is answered as if it were the same payment.",
        Change(starting.Starts._start, "require_same(", "(lambda *_, **__: None)("),
    ),
    Break(
        "lost-reply-not-started",
        "start",
        "A reply that is lost is taken for a request that was not sent.",
        Change(attempt.judge_start, "return Doubtful(reason)", "return NeverSent(reason)"),
    ),
    Break(
        "refusal-reopens",
        "start",
        "A 5xx is taken for a refusal.",
        Change(attempt.judge_start, "300 <= status < 500", "300 <= status < 600"),
    ),
    # The inbox.
    Break(
        "second-final",
        "inbox",
        "A later final replaces the first one.",
        Change(
            lifecycle.step,
            "move = MOVES[trail.position][known]\n",
            "move = NEXT if known in FINALS else MOVES[trail.position][known]\n",
        ),
    ),
    Break(
        "state-goes-back",
        "inbox",
        "A late event sets the state back.",
        Change(
            lifecycle.step,
            "verdict = VERDICTS[move]",
            "move = NEXT if move is LATE else move\n    verdict = VERDICTS[move]",
        ),
    ),
    Break(
        "after-final-applied",
        "inbox",
        "An event that comes after the final opens the payment again.",
        Change(
            lifecycle.step,
            "verdict = VERDICTS[move]",
            "move = NEXT if move is AFTER and known not in FINALS else move\n    verdict = VERDICTS[move]",
        ),
        Change(transitions._apply, "if transaction.phase is Phase.FINAL:", "if False:"),
    ),
    Break(
        "event-of-another-payment",
        "inbox",
        "An event is applied to the payment of its address, also where it names another one.",
        Change(inbox._usable, 'ours = event.client_transaction_id in (client_transaction_id, "")', "ours = True"),
    ),
    Break(
        "event-of-another-terminal",
        "inbox",
        "An event of a terminal outside the fleet is applied.",
        Change(inbox.Inbox._unwelcome, "in_fleet = serial in self._fleet or", "in_fleet = True or"),
    ),
    Break(
        "event-of-another-merchant",
        "inbox",
        "An event of another merchant is applied.",
        Change(inbox.Inbox._unwelcome, "own_merchant=self._merchant_id", 'own_merchant=""'),
    ),
    Break(
        "token-not-checked",
        "inbox",
        "The token in the callback address is not looked at.",
        Change(callback_urls.CallbackUrls.authentic, "return ", "return True or "),
    ),
    Break(
        "repeats-recorded",
        "inbox",
        "An event that comes again is recorded again.",
        Change(transitions.recognise, "if not recorded:", "if True:"),
    ),
    Break(
        "unstored-acknowledged",
        "inbox",
        "An event that could not be stored is answered 200.",
        Change(callbacks.CallbackInbox.commit, "CallbackResult.NOT_STORED", "CallbackResult.APPLIED"),
    ),
    Break(
        "good-event-refused",
        "inbox",
        "An event that cannot be stored now is answered 400, after which the terminal does not send it again.",
        Change(callbacks.CallbackInbox.commit, "CallbackResult.NOT_STORED", "CallbackResult.UNREADABLE"),
    ),
    Break(
        "damaged-event-refused",
        "inbox",
        "An event with one bad byte is refused as a whole.",
        Change(json_types.readable, "return mend(body)", "raise"),
    ),
    # Doubt and reconciliation.
    Break(
        "elapsed-time-decides",
        "reconcile",
        "A payment that is in doubt for ten minutes is taken for not started.",
        Change(
            reconcile.Reconciler._search,
            "result = RESULTS[type(answer)]\n",
            "result = RESULTS[type(answer)]\n"
            "    item = self._watched.get(identity)\n"
            "    if item is not None and item.watch.phase is Phase.IN_DOUBT and asked - item.watch.quiet_since > 600:\n"
            "        from posd.payments.missing_proof import Evidence, EvidenceKind, iso\n"
            "        said = Evidence(kind=EvidenceKind.SEARCH, at=iso(self._now()), result=result)\n"
            "        await self._record(identity, ProvedNotStarted((said,)))\n",
        ),
    ),
    Break(
        "empty-search-decides",
        "reconcile",
        "A search that finds nothing is taken for the proof that the payment never started.",
        Change(
            reconcile.Reconciler._search,
            "result = RESULTS[type(answer)]\n",
            "result = RESULTS[type(answer)]\n"
            "    if result is SearchResult.NONE:\n"
            "        from posd.payments.missing_proof import Evidence, EvidenceKind, iso\n"
            "        said = Evidence(kind=EvidenceKind.SEARCH, at=iso(self._now()), result=result)\n"
            "        await self._record(identity, ProvedNotStarted((said,)))\n",
        ),
    ),
    Break(
        "proof-of-one-round",
        "reconcile",
        "`not_started` is concluded after one abort and one search, without the second round.",
        Change(schedule.NotStartedProof.complete, "self.second_none is not None", "self.first_none is not None"),
        Change(reconcile.Reconciler._facts, "item.rounds.second_abort is not", "item.rounds.first_abort is not"),
    ),
    Break(
        "search-of-another-id",
        "reconcile",
        "What a search finds of another payment counts for this one.",
        Change(
            answers.read_reply,
            "for raw in elements if _bears(raw, client_transaction_id)",
            "for raw in elements",
        ),
    ),
    Break(
        "gap-not-searched",
        "reconcile",
        "A gap in the events is noted, and the terminal is not asked.",
        Change(schedule.after_change, "if gap or begins", "if begins"),
    ),
    Break(
        "silence-not-searched",
        "reconcile",
        "A payment that goes silent is not asked for.",
        Change(schedule.due, "None if watch.told else watch.quiet_since + silence_limit(watch, limits)", "None"),
    ),
    Break(
        "searched-once",
        "reconcile",
        "A search that brings nothing is not tried again.",
        Change(
            schedule.answered, "if not again and not (watch.wanted and result is SearchResult.NO_ANSWER):", "if True:"
        ),
    ),
    Break(
        "abort-at-the-acquirer",
        "abort",
        "An abort is sent although the acquirer was asked already.",
        Change(abort.Aborts._fence, "if past_point_of_no_return(transaction):", "if False:"),
        Change(abort.Aborts.possible, "if not transaction.abortable:", "if False:"),
    ),
    Break(
        "abort-without-lease",
        "abort",
        "An abort is sent for a payment that does not hold its terminal any more.",
        Change(
            abort.Aborts._fence,
            "if rows.lease_holder(unit.db, transaction.terminal) != client_transaction_id:",
            "if False:",
        ),
        Change(abort.Aborts.possible, "if not transaction.abortable:", "if False:"),
    ),
    Break(
        "abort-is-an-outcome",
        "abort",
        "An abort that the terminal has taken is the end of the payment.",
        Change(
            abort.Aborts._settle,
            "return record(unit, transaction, AbortAnswered",
            "after = record(unit, transaction, AbortAnswered",
        ),
        Change(
            abort.Aborts._settle,
            "self._outstanding)",
            "self._outstanding)\n"
            "    if judge_abort(attempt) is AbortAnswer.TAKEN and after.phase is not Phase.FINAL:\n"
            "        from posd.payments.entries import Resolved\n"
            "        from posd.payments.model import Result\n"
            "        said = Resolved('posd', 'aborted', None, Result.CANCELED)\n"
            "        after = record(unit, after, said, self._now(), self._outstanding)\n"
            "    return after",
        ),
    ),
    # People.
    Break(
        "person-beats-terminal",
        "decide",
        "What the terminal says after a person's word does not count any more.",
        Change(
            outcomes.finish,
            "if old is not None:\n",
            "if old is not None and old.by_operator:\n        return transaction\n    if old is not None:\n",
        ),
    ),
    Break(
        "released-during-call",
        "decide",
        "A person frees a terminal while a call of that payment is under way.",
        Change(
            decide.Operators._require_open_and_quiet,
            "if self._outstanding.of(transaction.client_transaction_id) or transaction.phase is Phase.STARTING:",
            "if False:",
        ),
    ),
    # Chains.
    Break(
        "sum-not-checked",
        "chains",
        "An operation may take more than what its original allows.",
        Change(chains._place, "_refuse_excess(placed, original, beside, amounts)", "pass"),
    ),
    Break(
        "chain-not-checked",
        "chains",
        "An operation is started beside another one of its chain that has ended it, or is open.",
        Change(
            chains._place,
            "_refuse_beside(kind, beside, chain[1:], repeat=placed.repeat)",
            "pass",
        ),
    ),
    Break(
        "oldest-reference",
        "chains",
        "A capture is sent under the reference of the pre-authorization, although that was authorized anew.",
        Change(operations.source_of, "return again[-1] if again else original", "return original"),
    ),
    Break(
        "day-of-utc",
        "chains",
        "The day on which a void is a cancellation ends at midnight UTC, not of the shop.",
        Change(operations.end_of_day, "datetime.combine(day, time.min, zone)", "datetime.combine(day, time.min, UTC)"),
    ),
    # Which device is the terminal.
    Break(
        "twin-followed",
        "identity",
        "A second device that says it is a terminal is followed although the first one answers.",
        Change(
            identity.judge,
            "return UsableAddress.TRUSTED if seen.decided else AddressConflict.RIVALS",
            "return UsableAddress.NEW",
        ),
    ),
    # The feed, and those who wait.
    Break(
        "waiter-not-woken",
        "feed",
        "Those who wait for one payment are not woken by its changes.",
        Change(changes.Hub.publish, "for subject in (change.id, ANY):", "for subject in (ANY,):"),
    ),
    Break(
        "wake-up-lost",
        "feed",
        "A change that comes while a waiter reads the state is forgotten.",
        Change(changes.Waiter.wait, "if not self._set:\n", "if True:\n"),
    ),
    Break(
        "change-without-row",
        "feed",
        "A change of the state alone has no line in the feed.",
        Change(
            record.move,
            "if changed is not before:",
            "if changed is not before and (changed.phase, changed.outcome) != (before.phase, before.outcome):",
        ),
    ),
    Break(
        "feed-with-gap",
        "feed",
        "A page of the feed leaves out the change behind its beginning.",
        Change(changes.after, "WHERE seq > ?", "WHERE seq > ? + 1"),
    ),
    Break(
        "feed-by-time",
        "feed",
        "The feed is in the order of the wall clock.",
        Change(changes.after, "ORDER BY seq LIMIT", "ORDER BY at LIMIT"),
    ),
    Break(
        "withdrawn-not-told",
        "feed",
        "The feed has no outcome for the changes of a payment that had one, and is open again.",
        Change(accounting._by_then, "transaction.outcome or transaction.withdrawn", "transaction.outcome"),
    ),
    # Printing.
    Break(
        "printed-twice",
        "print",
        "A print request whose reply is lost is sent again.",
        Change(
            print_start.Printing._attempt,
            'crash_point("print.replied")',
            "if isinstance(attempt, ReplyLost):\n        attempt = await known.call(request)",
        ),
    ),
    Break(
        "print-not-polled",
        "print",
        "A print job without a webhook is never asked for.",
        Change(
            poll.PrintPoller._ask_next, "at, identity = line.due[0]", "return NEVER\n    at, identity = line.due[0]"
        ),
    ),
    # The listeners.
    Break(
        "idle-never-ended",
        "httpd",
        "A connection on which nothing comes stays open.",
        Change(
            http_connection.ListenerContext._end_idle,
            "            return\n        end()",
            "            return\n        pass",
        ),
    ),
    Break(
        "keep-alive-short",
        "httpd",
        "A connection is ended as idle while its request is being answered.",
        Change(http_connection.HttpConnection.stop, "self.shared.idle.pop(self.end_idle, None)", "pass"),
    ),
    Break(
        "no-places",
        "limits",
        "Strangers on the LAN may open any number of connections.",
        Change(admission.AdmissionGate.admit, "if not all(share.has_room(now) for share in shares):", "if False:"),
    ),
    Break(
        "log-floods",
        "limits",
        "Each refused connection is a line of the log.",
        Change(
            admission.RejectedTraffic.note,
            "if (untold := self._untold.get(kind)) is not None:",
            "if (untold := None) is not None:",
        ),
    ),
    Break(
        "tasks-leak",
        "limits",
        "The connections that have ended are never forgotten.",
        Change(server.HttpListener._forget, "del self._connections[task]", "pass"),
    ),
    # The clock.
    Break(
        "clock-never-unsure",
        "clock",
        "A clock that jumps is believed.",
        Change(rules.doubt, "if reading.wall < built", "return None\n    if reading.wall < built"),
    ),
    # Records, backups, the certificate.
    Break(
        "prune-by-clock",
        "retention",
        "Records are removed by the wall clock, also while it is not believed.",
        Change(retention.Retention.prune, "if not dry_run and doubt is not None:", "if False:"),
        Change(
            retention.Retention.prune, "now = self.now() if doubt is None else self.confirmed()", "now = self.now()"
        ),
        Change(retention.Retention._by_itself, "if (doubt := self.doubt()) is not None:", "if (doubt := None):"),
        Change(retention.Retention._by_itself, "self._prune(self.confirmed(),", "self._prune(self.now(),"),
        Change(retention.Retention.interrupted, " or self.doubt() is not None", ""),
    ),
    Break(
        "events-without-limit",
        "limits",
        "A terminal may have any number of events of one payment kept.",
        Change(transitions.limit_of_events, "if recorded < EVENTS_OF_TRANSACTION.value or", "if True or"),
    ),
    Break(
        "quarantine-not-kept",
        "inbox",
        "An event that cannot be used is refused, and its bytes are thrown away.",
        Change(
            callbacks.CallbackInbox.refuse,
            "elif not quarantine.put(unit, self.kind.channel, identity, reason, came):",
            "elif False:",
        ),
    ),
    Break(
        "backup-without-log",
        "backup",
        "A backup has what is in the database file, and not what is in its log.",
        Change(
            backup._copy,
            "closing(connect_reader(database))",
            'closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True, isolation_level=None))',
        ),
    ),
    Break(
        "restored-under-old-id",
        "restore",
        "A database that was restored goes on under the old database_id.",
        Change(
            restore.Restore._prepare,
            "database_id.renew(db, mark.at, taken.first_seq, database_id.IdentityCause.RESTORED)",
            "pass",
        ),
    ),
    Break(
        "going-back-not-noticed",
        "witness",
        "A database that has gone back in time is used like any other.",
        Change(restore_guard._compare, "if why is not None:", "if False:"),
    ),
    Break(
        "certificate-not-renewed",
        "certificate",
        "The certificate of the listener is not renewed before its end.",
        Change(certificate.ServedCertificate._renew_where_due, "if not reasons or not self.sure():", "if True:"),
    ),
    # The stop.
    Break(
        "stop-without-drain",
        "stop",
        "The stop does not wait for the starts that are under way.",
        Change(
            start.Payments.drain,
            "await self._starts.wait(seconds)\n    self._fleet.cancel_calls()\n    await self._starts.wait()",
            "pass",
        ),
    ),
    Break(
        "waiters-not-told",
        "stop",
        "Tills that wait are not told that posd stops.",
        Change(changes.Hub.drain, "waiter.set()", "pass"),
    ),
    # The witness.
    Break(
        "witness-dropped",
        "witness",
        "The witness of the payments that were started is not read at the start.",
        Change(restore_guard.RestoreGuard._read, "left = self._file.read()", "left = None"),
    ),
    # The log.
    Break(
        "log-written-in-place",
        "log",
        "Who logs a line writes it, and waits for the log's reader.",
        Change(LogWriter.put, "self._changed.notify_all()", 'self._write(memoryview(b"".join(lines)))'),
    ),
    Break(
        "dropped-lines-not-told",
        "log",
        "Lines of the log for which there is no room are dropped and not counted.",
        Change(LogWriter.put, "self.dropped += 1", "pass"),
    ),
)

#: All of them, by name.
BREAKS: Final[Mapping[str, Break]] = {item.name: item for item in _ALL}


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply a mistake to the product of this process for the block. Raise KeyError, ValueError."""
    with ExitStack() as stack:
        by_function: dict[FunctionType, list[Change]] = {}
        for change in BREAKS[name].changes:
            by_function.setdefault(_plain(change.function), []).append(change)
        for function, changes in by_function.items():
            stack.enter_context(_changed(function, changes))
        yield
