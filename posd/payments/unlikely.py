"""An approval that contradicts its request (design: a suspicious answer counts, and is reported).

The terminal said it, so it is applied, and `approval_unlikely` says what does not fit. The facts to compare it with
(currencies that were seen, whether the clock was sure) are known only when it arrives. So the findings are written into
the journal, in the commit of the approval, and are derived again from there: see `entries.Unlikely`.
"""

from datetime import datetime, timedelta

from posd.base.times import iso, parse_iso
from posd.payments.amounts import authorized
from posd.payments.entries import Unlikely
from posd.payments.model import Transaction
from posd.payments.operations import OPERATIONS
from posd.payments.wire import TransactionEvent

#: A terminal with a right clock dates no approval further away than this.
FAR = timedelta(days=1)


def _letters(word: str) -> str:
    return "".join(filter(str.isalpha, word)).upper()


#: Letters of every word for an operation, the wire's and the API's -> the operation.
_TYPES = {_letters(word): kind for kind, row in OPERATIONS.items() for word in (kind, row.wire or kind)}


def unlikely(
    transaction: Transaction,
    event: TransactionEvent,
    currencies: frozenset[str],
    received_at: datetime | None,
    same_reference: str | None = None,
) -> Unlikely | None:
    """Return in what an approval contradicts its request, None if nothing does.

    `currencies`: those that it may have, empty: any. `received_at`: its arrival by a trusted clock, else None.
    `same_reference`: the id of another payment that was approved with the same reference, None if there is none.
    """
    reasons = [*_sum(transaction, event)]
    by_sum = bool(reasons)
    currency = event.currency
    if currency is not None and currencies and currency.upper() not in currencies:
        reasons.append(f"it is in {ascii(currency)[1:-1]}, and not in {' or '.join(sorted(currencies))}")
    reasons += _type(transaction, event)
    if received_at is not None:
        reasons += _date(transaction, event, received_at)
    if same_reference is not None:
        reasons.append(f"its reference is that of {same_reference} too: name it by `original`, never by the reference")
    return Unlikely(tuple(reasons), by_sum) if reasons else None


def _sum(transaction: Transaction, event: TransactionEvent) -> list[str]:
    comparable = transaction.type is None or OPERATIONS[transaction.type].compares
    asked, taken = transaction.total, authorized(transaction, event)
    if not asked or not comparable or taken is None or asked <= 2 * taken <= 4 * asked:
        return []
    return [f"asked for {asked}, authorized {taken}"]


def _type(transaction: Transaction, event: TransactionEvent) -> list[str]:
    """Compare the operation, where the words of the wire for both are known."""
    asked, said = transaction.type, _TYPES.get(_letters(event.operation_type or ""))
    if asked is None or said is None or asked is said or OPERATIONS[asked].wire is None:
        return []
    return [f"asked for a {asked}, approved as {said}"]


def _date(transaction: Transaction, event: TransactionEvent, received_at: datetime) -> list[str]:
    """Compare the date with the time from the request to the arrival: a terminal's queue may be older than a day."""
    try:
        at = parse_iso(event.occurred_at)
        early = at < min(parse_iso(transaction.created_at), received_at) - FAR
        late = at > received_at + FAR
    except (ValueError, OverflowError):
        return []  # it has no date that can be read
    return [f"it is dated {ascii(event.occurred_at)[1:-1]}, and arrived {iso(received_at)}"] if early or late else []
