"""Chains: which transactions derive from which, and the guards against a double payment.

The guards run inside the commit of the intent.
"""

import sqlite3
from collections.abc import Callable, Container, Iterator, Sized
from contextlib import suppress
from datetime import tzinfo
from itertools import islice

import msgspec

from posd.base.operations import OPERATIONS, STANDALONE, OperationType
from posd.base.problems import Problem
from posd.base.times import iso, parse_iso
from posd.config.schema import AmountsConfig
from posd.payments import counting, journal, rows
from posd.payments import operations as rules
from posd.payments.counting import MAX_SHOWN, Original, excess
from posd.payments.model import Outcome, Transaction, may_be_paid, undecided
from posd.payments.operations import end_of_day
from posd.payments.wire import NotAnEvent, read_event
from posd.records.model import Phase
from posd.records.service import CallsInFlight
from posd.storage.batch import WriteTransaction

# A reference comes from the acquirer, and several payments can have the same reference. A transaction that was sent
# with a reference belongs to the payment that has it. If several payments have it, the transaction belongs to the one
# on its own terminal, if there is exactly one. A transaction with `derives_from` is linked by that id only.

#: SQL condition for the transactions that were sent with a reference and have no `derives_from`. `IS NOT NULL` lets
#: SQLite use the index.
_SENT_UNDER = "upper(transaction_reference) = ? AND transaction_reference IS NOT NULL AND derives_from IS NULL"


def with_reference(db: sqlite3.Connection, reference: str, terminal: str | None) -> Transaction | list[str] | None:
    """Return the transaction that was approved with a reference, or None.

    If several have it, return the one on that terminal. If there is not exactly one on that terminal, return the ids of
    the two oldest.
    """
    found = list(rows.where(db, "given_reference = upper(?) ORDER BY rowid LIMIT 2", (reference,)))
    if len(found) < 2:
        return found[0] if found else None
    own = list(rows.where(db, "given_reference = upper(?) AND +terminal = ? LIMIT 2", (reference, terminal)))
    return own[0] if len(own) == 1 else [item.client_transaction_id for item in found]


def another_with_reference(db: sqlite3.Connection, transaction: Transaction) -> str | None:
    """Return the id of another transaction with the same reference, or None."""
    if transaction.given_reference is None:
        return None
    query = "SELECT client_transaction_id FROM transactions WHERE given_reference = ? LIMIT 2"
    found = (identity for (identity,) in db.execute(query, (transaction.given_reference,)))
    return next((identity for identity in found if identity != transaction.client_transaction_id), None)


def named(db: sqlite3.Connection, original: str | None, reference: str | None) -> Transaction | None:
    """Return the original that a till names by id, else by reference. Return None if it is unknown or ambiguous."""
    found = rows.get(db, original) if original is not None else with_reference(db, reference or "", None)
    return found if isinstance(found, Transaction) else None


def derived_ids(db: sqlite3.Connection, transaction: Transaction) -> list[str]:
    """Return the ids of the transactions that derive from a transaction, oldest first.

    Include transactions that were sent with its reference while the database did not have this transaction.
    """
    found = ChainLinks(db).derived(transaction)
    return [found[rowid] for rowid in sorted(found)]


def original_of(db: sqlite3.Connection, transaction: Transaction) -> str | None:
    """Return the id of a transaction's original, or None.

    The till named the original by its id or by its reference.
    """
    named = transaction.original or transaction.derives_from
    if named is not None or transaction.transaction_reference is None:
        return named
    found = with_reference(db, transaction.transaction_reference, transaction.terminal)
    return _root(found) if isinstance(found, Transaction) else None


def _root(original: Transaction) -> str:
    """Return the id of a payment. For a re-authorization, return the id of its pre-authorization if it is known."""
    above = original.derives_from if original.type is OperationType.RE_AUTH else None
    return above or original.client_transaction_id


def read_original(db: sqlite3.Connection, transaction: Transaction) -> Transaction | None:
    """Return the payment that a void, a refund or a tip changes.

    Return None for other types, or if the payment is unknown.
    """
    identity = None if transaction.type in STANDALONE else original_of(db, transaction)
    return rows.get(db, identity) if identity is not None else None


def original_facts(db: sqlite3.Connection, transaction: Transaction, original: Transaction | None) -> Original | None:
    """Return the facts of an original that `counting` needs, or None without an original.

    `original`: the result of `read_original`.
    """
    if original is None:
        return None
    own = rows.number(db, transaction.client_transaction_id)
    found = ChainLinks(db, only=_CHANGES_ORIGINAL).members(original)
    return counting.original_of(original, (item for number, item in found.items() if own is None or number < own))


#: SQL condition for the derived operations that change the amount of an original. Refunds do not change it, and are not
#: read, because there can be many.
_CHANGES_ORIGINAL = "type IN ('re-auth', 'post-tip')"
#: Largest number of transactions of a chain that are read for a new operation. A restaurant's bill has three.
MAX_CHAIN = 300
#: Largest number of payments with one reference that are read for a new operation.
MAX_GIVERS = 5000


class ChainTooLong(Exception):
    """Chain with more transactions than posd reads, so posd cannot tell whether a new operation is allowed."""


class ChainLinks:
    """Links between transactions, for one check of a chain. Each transaction is read once.

    `most`: largest number of transactions, above which ChainTooLong is raised; None: no limit. `only`: SQL condition on
    the derived transactions to read.
    """

    def __init__(self, db: sqlite3.Connection, most: int | None = None, only: str = "1") -> None:
        self._db = db
        self._most = most
        self._only = only
        self._known: dict[str, Transaction | None] = {}
        self._sent: dict[str, dict[int, str]] = {}
        self._givers: dict[str, dict[str, list[str]]] = {}
        self._walked: set[str] = set()

    def derived(self, transaction: Transaction) -> dict[int, str]:
        """Return rowid -> id of the transactions that derive from this transaction, by its id or by its reference."""
        found = self._ids("derives_from = ?", transaction.client_transaction_id)
        reference, own = transaction.given_reference, transaction.terminal
        if reference is None or not (sent := self._sent_under(reference)):
            return found
        if self._giver(reference, own) != transaction.client_transaction_id:
            return found
        if len(self._given(reference)) > 1:
            sent = {rowid: item for rowid, item in sent.items() if (known := self._get(item)) and known.terminal == own}
        return found | sent

    def members(self, original: Transaction | None, reference: str | None = None) -> dict[int, Transaction]:
        """Return rowid -> transaction, oldest first, for all that derive from an original or its re-authorizations.

        If the original is unknown, return the transactions sent with the reference, and those that derive from them.
        """
        found: dict[int, str] = {}
        if original is None:
            found |= self._sent_under(reference.upper()) if reference else {}
        else:
            found |= self.derived(original)
            if original.type is OperationType.RE_AUTH and original.transaction_reference and not original.derives_from:
                # The database lacks the pre-authorization. Transactions with the same reference derive from it too.
                found |= self._sent_under(original.transaction_reference.upper())
        known: dict[int, Transaction] = {}
        while waiting := found.keys() - known.keys():
            for rowid in waiting:
                if (item := self._get(found[rowid])) is None:
                    del found[rowid]
                    continue
                known[rowid] = item
                if item.type is OperationType.RE_AUTH:
                    found |= self.derived(item)
        return dict(sorted(known.items()))

    def whole(self, transaction: Transaction) -> list[Transaction]:
        """Return all transactions of a transaction's chain, this transaction first, even if it is not recorded."""
        found, waiting = {transaction.client_transaction_id: transaction}, [transaction]
        while waiting:
            item = waiting.pop()
            for identity in self._beside(item):
                if identity not in found and (other := self._get(identity)) is not None:
                    found[identity] = other
                    waiting.append(other)
        return list(found.values())

    def _beside(self, item: Transaction) -> Iterator[str]:
        """Yield the ids of the transactions with a direct link to this transaction."""
        yield from self.derived(item).values()
        if (named := item.original or item.derives_from) is not None:
            yield named
        elif item.transaction_reference is not None:
            reference = item.transaction_reference.upper()
            giver = self._giver(reference, item.terminal)
            if giver is not None and (found := self._get(giver)) is not None:
                yield _root(found)
            elif not self._given(reference) and reference not in self._walked:
                self._walked.add(reference)
                yield from self._sent_under(reference).values()

    def _get(self, identity: str) -> Transaction | None:
        if identity not in self._known:
            self._known[identity] = rows.get(self._db, identity)
            self._refuse_too_many(self._known)
        return self._known[identity]

    def _sent_under(self, reference: str) -> dict[int, str]:
        """Return rowid -> id of the transactions that were sent with a reference and have no `derives_from`."""
        if reference not in self._sent:
            self._sent[reference] = self._ids(_SENT_UNDER, reference)
        return self._sent[reference]

    def _giver(self, reference: str, terminal: str) -> str | None:
        """Return the id of the payment with a reference.

        If several have it, return the one on that terminal. Return None if there is not exactly one.
        """
        found = self._given(reference)
        ids = next(iter(found.values())) if len(found) == 1 else found.get(terminal, [])
        return ids[0] if len(ids) == 1 else None

    def _given(self, reference: str) -> dict[str, list[str]]:
        """Return terminal -> ids of the payments with a reference."""
        if reference not in self._givers:
            found: dict[str, list[str]] = {}
            query = "SELECT client_transaction_id, terminal FROM transactions WHERE given_reference = ? LIMIT ?"
            most = -1 if self._most is None else MAX_GIVERS + 1
            ids = self._db.execute(query, (reference, most)).fetchall()
            if self._most is not None and len(ids) > MAX_GIVERS:
                raise ChainTooLong
            for identity, terminal in ids:
                found.setdefault(terminal, []).append(identity)
            self._givers[reference] = found
        return self._givers[reference]

    def _ids(self, condition: str, parameter: str) -> dict[int, str]:
        """Return rowid -> id of the transactions that meet a condition, which must have an index.

        A query with two such conditions, joined by OR, would scan all rows.
        """
        most = -1 if self._most is None else self._most + 1
        query = f"SELECT rowid, client_transaction_id FROM transactions WHERE {condition} AND {self._only} LIMIT ?"  # noqa: S608
        found = dict(self._db.execute(query, (parameter, most)).fetchall())
        self._refuse_too_many(found)
        return found

    def _refuse_too_many(self, found: Sized) -> None:
        if self._most is not None and len(found) > self._most:
            raise ChainTooLong


# Original and chain of a new transaction, found inside the commit of its intent. The rules are in
# `payments.operations` and `payments.counting`.


def place(
    unit: WriteTransaction, transaction: Transaction, zone: tzinfo, amounts: AmountsConfig
) -> tuple[Transaction, frozenset[str]]:
    """Add the reference to send and the original's id to a transaction. Return it, and the ids of its chain.

    Raise Problem unknown_original, already_derived, chain_conflict or amount_exceeds; then nothing is sent.
    """
    kind = transaction.type or OperationType.CHARGE
    if not OPERATIONS[kind].originals:
        return transaction, frozenset({transaction.client_transaction_id})
    try:
        return _place(unit, transaction, kind, zone, amounts)
    except ChainTooLong:
        raise Problem(
            "chain_conflict",
            f"cannot start: more than {MAX_CHAIN} operations are linked with the named payment, failed "
            f"ones too, so posd cannot tell what is allowed. Do the {kind} on the terminal or with the acquirer, "
            f"and check what this till repeats. No {kind} was sent",
            transactions=[],
        ) from None


def _place(
    unit: WriteTransaction, transaction: Transaction, kind: OperationType, zone: tzinfo, amounts: AmountsConfig
) -> tuple[Transaction, frozenset[str]]:
    links = ChainLinks(unit.db, MAX_CHAIN)
    placed = _under_original(unit, transaction, kind, links)
    original = rows.get(unit.db, placed.derives_from) if placed.derives_from else None
    beside = list(links.members(original, placed.transaction_reference).values())
    chain = links.whole(placed)
    if blocking := rules.in_the_way(kind, beside, chain[1:], repeat=placed.repeat):
        raise _blocked(kind, blocking, links)
    ids = frozenset(item.client_transaction_id for item in chain)
    if original is None:
        return placed, ids
    if (exceeds := excess(placed, original, beside, amounts)) is not None:
        raise exceeds
    if kind is OperationType.VOID and original.outcome is not None and original.type is not OperationType.RE_AUTH:
        # For a void of a re-authorization the day stays unknown: the pre-authorization may be from an earlier day.
        until = _same_day_until(unit, original, original.outcome, zone)
        placed = msgspec.structs.replace(placed, same_day_until=until)
    return placed, ids


def _under_original(
    unit: WriteTransaction, transaction: Transaction, kind: OperationType, links: ChainLinks
) -> Transaction:
    if transaction.original is None:
        return _under_reference(unit, transaction, kind)
    original = rows.get(unit.db, transaction.original)
    if original is None:
        if (removed := rows.PAYMENT.find_pruned(unit.db, transaction.original)) is not None:
            raise _unknown(
                kind,
                f"{transaction.original} ended {removed.result} on {removed.ended_on}, and its record was removed at "
                "the end of its retention; give its `transaction_reference` instead",
            )
        raise _unknown(
            kind, f"no transaction {transaction.original} is known here; check the id, or give `transaction_reference`"
        )
    if fault := rules.misfit(kind, original):
        raise _unknown(kind, fault + _named_instead(unit, kind, original))
    source = rules.source_of(kind, original, list(links.members(original).values()))
    reference = source.outcome.transaction_reference if source.outcome else None
    if reference is None:
        raise _unknown(
            kind,
            f"{source.client_transaction_id} was approved without a transaction_reference; if the receipt or the "
            "acquirer gives one, send it as `transaction_reference` instead",
        )
    return msgspec.structs.replace(
        transaction, transaction_reference=reference, derives_from=original.client_transaction_id
    )


def _named_instead(unit: WriteTransaction, kind: OperationType, original: Transaction) -> str:
    """Return the advice to name the pre-authorization instead of a re-authorization, or an empty text."""
    fits = OperationType.PRE_AUTH in OPERATIONS[kind].originals
    if not fits or original.type is not OperationType.RE_AUTH or original.derives_from is None:
        return ""
    above = rows.get(unit.db, original.derives_from)
    known = above is not None and above.type is OperationType.PRE_AUTH
    return f"; name its pre-auth, {original.derives_from}" if known else ""


def _under_reference(unit: WriteTransaction, transaction: Transaction, kind: OperationType) -> Transaction:
    """Link a transaction to the payment with the reference that the till named, if this database knows that payment."""
    reference = transaction.transaction_reference or ""
    match with_reference(unit.db, reference, transaction.terminal):
        case None:
            return transaction
        case list() as ids:
            raise _unknown(
                kind,
                f"several payments were approved with the reference {reference} ({', '.join(ids)}, …), so it is "
                "not clear which one is meant; give `original`, the id of the payment, instead",
            )
        case original:
            if original.type is not None and (fault := rules.misfit(kind, original, by_reference=True)):
                raise _unknown(kind, fault)
            return msgspec.structs.replace(transaction, derives_from=_root(original))


def _blocked(kind: OperationType, found: rules.BlockingOperation, links: ChainLinks) -> Problem:
    shown = found.others[:MAX_SHOWN]
    words = ", ".join(f"{item.type} {item.client_transaction_id} ({_standing(item)})" for item in shown)
    return Problem(
        found.code,
        f"cannot start: {_why(found)} {words}. {_what_to_do(kind, found, links)} No {kind} was sent",
        transactions=[item.client_transaction_id for item in shown],
    )


def _why(found: rules.BlockingOperation) -> str:
    if found.code == "already_derived":
        return "the same original already has"
    if undecided(found.others[0]):
        return "another operation of the same chain is not settled:"
    return "no operation can follow"


def _what_to_do(kind: OperationType, found: rules.BlockingOperation, links: ChainLinks) -> str:
    other = found.others[0]
    if other.outcome is None:
        return "Wait for its outcome first, or abort it."
    if undecided(other):
        return "It is not certain how that one ended: an operator has to settle it first."
    if found.by_repeat:
        return f'Check it first; if this {kind} is a further one, say so with "additional": true.'
    if other.type is OperationType.CAPTURE:  # so `kind` is a void: a capture excludes no other type
        for item in found.others:
            if rules.in_the_way(kind, list(links.members(item).values()), (), repeat=False) is None:
                return f"To give the money back, void the capture: its id is {item.client_transaction_id}."
        return "The capture was voided or refunded already, so there is nothing to void."
    if other.type is OperationType.VOID:
        return "A void is final; for a further payment start a new charge."
    return "A further refund is possible instead."


def _standing(transaction: Transaction) -> str:
    return transaction.outcome.result if transaction.outcome else "open"


def _same_day_until(unit: WriteTransaction, original: Transaction, outcome: Outcome, zone: tzinfo) -> str:
    """Return the end of the day on which the terminal approved the original.

    The terminal's time is used, because posd can receive an approval much later. If it cannot be read, the time of the
    outcome is used.
    """
    body = journal.final_event(unit.db, original)
    with suppress(NotAnEvent, ValueError, OverflowError):  # OverflowError: a date outside the calendar
        return iso(end_of_day(parse_iso(read_event(body or b"").occurred_at), zone))
    return iso(end_of_day(parse_iso(outcome.decided_at), zone))


def _unknown(kind: OperationType, reason: str) -> Problem:
    return Problem("unknown_original", f"cannot start: {reason}. No {kind} was sent")


# Further guards against a double payment: another payment of the same sale, and another payment on the terminal.

#: Largest number of payments of a sale that are read, newest first. A sale can have ten declined cards.
MAX_OF_SALE = 300


def refuse_sale(unit: WriteTransaction, transaction: Transaction, chain: Container[str]) -> None:
    """Raise Problem if another transaction of the sale is open, approved or unsettled, on any terminal.

    A transaction of the same chain does not count as a second payment of the sale. `place` checks it.
    """
    if transaction.sale is None or transaction.repeat:
        return
    newest = list(islice(rows.of_sale(unit.db, transaction.sale), MAX_OF_SALE + 1))
    claims = (
        item.client_transaction_id for item in newest if may_be_paid(item) and item.client_transaction_id not in chain
    )
    others = list(islice(claims, MAX_SHOWN))
    if not others and len(newest) > MAX_OF_SALE:
        raise Problem(
            "sale_conflict",
            f"cannot start: sale {transaction.sale} has more than {MAX_OF_SALE} payments, so posd cannot tell whether "
            "one of them is approved. Give each sale a key of its own; if this is a further payment for the same "
            'sale, say so with "additional": true',
            transactions=[],
        )
    if others:
        raise Problem(
            "sale_conflict",
            f"cannot start: sale {transaction.sale} already has a payment that is open or approved "
            f"({', '.join(others)}); check it first. If this is a further payment for the same sale, say so with "
            '"additional": true',
            transactions=others,
        )


def refuse_busy(
    unit: WriteTransaction, transaction: Transaction, outstanding: CallsInFlight, has_left: Callable[[str], bool]
) -> None:
    """Raise Problem if another transaction holds the terminal and is open, or has an open call.

    `has_left`: returns whether a reload of the configuration removed a serial, or gave it another address. The same
    device can have a new serial in the configuration, and still run a payment that was started under the old one.
    """
    for serial, identity in rows.leases(unit.db).items():
        own = serial == transaction.terminal
        blocking = rows.get(unit.db, identity) if own or has_left(serial) else None
        if blocking is None or not (own or blocking.sent_to == transaction.sent_to):
            continue
        if blocking.phase is Phase.FINAL and not outstanding.of(identity):
            continue
        raise Problem(
            "terminal_busy",
            f"cannot start: terminal {transaction.terminal} is still busy with {identity} "
            f"({blocking.status or blocking.phase} since {blocking.updated_at}); wait for it, abort it "
            f"(posd abort {identity}) or free the terminal (posd release {identity})",
            blocking_transaction=identity,
        )
