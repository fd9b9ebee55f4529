"""What the one attempt to send a start request proves.

`Attempt` is what the terminal client saw; `judge` turns it into what is known. The line that matters is whether
anything of the request was written: before it nothing can have been charged, after it everything is possible.

Source: terminal API, Acknowledgement, Calls to a terminal.
"""

from collections.abc import Mapping

import msgspec

from posd.payments.events import read_acknowledgement
from posd.payments.lifecycle import Status
from posd.records import start_reply
from posd.records.start_reply import Doubtful, Refused, Unsent
from posd.terminals.attempt import Attempt, Replied


class Acknowledged(msgspec.Struct, frozen=True):
    """The terminal took the request; `serial_number` is who says so, where it says it."""

    serial_number: str | None


Judgement = Acknowledged | Refused | Unsent | Doubtful


def judge(attempt: Attempt, client_transaction_id: str) -> Judgement:
    """Judge the attempt to start the transaction of that id."""
    return start_reply.judge(attempt, lambda reply: _judge_success(reply, client_transaction_id))


def _judge_success(reply: Replied, client_transaction_id: str) -> Judgement:
    acknowledgement = read_acknowledgement(reply.body) if reply.complete else None
    if acknowledgement is None:
        return Doubtful(f"the terminal answered HTTP {reply.status} with something that is no acknowledgement")
    if acknowledgement.status != Status.TERMINAL_ACKNOWLEDGED:
        return Doubtful(f"the terminal answered HTTP {reply.status} with status {acknowledgement.status}")
    if any(echoed != client_transaction_id for echoed in acknowledgement.client_transaction_ids):
        return Doubtful("the terminal acknowledged another transaction")
    return Acknowledged(acknowledgement.serial_number)


#: Outcome words for the log, by kind of judgement.
NAMES: Mapping[type[Judgement], str] = {
    Acknowledged: "acknowledged",
    Refused: "refused",
    Unsent: "unsent",
    Doubtful: "in_doubt",
}
