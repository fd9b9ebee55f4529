"""The operation types in words, one row each: what is true of a charge need not be true of a void."""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: what to do about two approvals of a type that a void can reverse, and of any other.
VOID_IT = "void the second approval if there are two (posd void --reference UUID)"
ASK_ACQUIRER = "have the acquirer put right what was done twice"

#: `outcome.reversal` of an approved void -> what it did (terminal API, Lifecycle).
REVERSALS: Mapping[str | None, str] = {
    "cancellation": "The original was reversed on its own day: a cancellation.",
    "refund": "The original was reversed after its day had ended: a refund.",
    None: "The original was reversed. Whether that is a cancellation (on its own day) or a refund is not known here.",
}


class Operation(NamedTuple):
    """The words of one operation type.

    An approval means that `subject` was `done`; `approved` says it in full, and what it does not mean. `undone` is the
    half sentence for every other end. `followed_by`: what has to name its reference; empty where nothing can.
    `twice`: what to do about two approvals. `card`: whether the terminal is known to ask for the card (terminal API,
    Lifecycle).
    """

    noun: str
    subject: str
    done: str
    approved: str
    undone: str
    followed_by: str = ""
    twice: str = ASK_ACQUIRER
    card: bool = False

    @property
    def whether(self) -> str:
        """The question that an open one leaves: "whether the customer was charged"."""
        return f"whether {self.subject} was {self.done}"

    @property
    def lack(self) -> str:
        """What an approval without a reference lacks, as a half sentence to add; empty where it lacks nothing."""
        return f", which {self.followed_by} has to name" if self.followed_by else ""

    def fill(self, template: str) -> str:
        """Fill the braces of a template: fields of this row, {whether} and {lack}."""
        return template.format(**self._asdict(), whether=self.whether, lack=self.lack)


#: The API's `type` -> its words.
OPERATIONS: Mapping[str, Operation] = {
    "charge": Operation(
        noun="payment",
        subject="the customer",
        done="charged",
        approved="The customer was charged.",
        undone="the customer was not charged",
        followed_by="a tip or a void",
        twice=VOID_IT,
        card=True,
    ),
    "pre-auth": Operation(
        noun="pre-authorization",
        subject="the amount",
        done="reserved",
        approved="The amount was reserved; nothing is charged before it is captured.",
        undone="nothing was reserved",
        followed_by="a capture, a re-authorization or a void",
        twice=VOID_IT,
        card=True,
    ),
    "re-auth": Operation(
        noun="re-authorization",
        subject="the reservation",
        done="changed",
        approved="The reservation was changed; nothing is charged before it is captured.",
        undone="the reservation is as it was",
        followed_by="a capture or a void",
    ),
    "capture": Operation(
        noun="capture",
        subject="the customer",
        done="charged",
        approved="The reservation was captured: the customer was charged.",
        undone="it charged nothing, and the reservation is as it was",
        followed_by="a void",
        twice=VOID_IT,
    ),
    "post-tip": Operation(
        noun="tip",
        subject="the tip",
        done="charged",
        approved="The tip was charged.",
        undone="it was not charged, and the payment that it is for is as it was",
    ),
    "void": Operation(
        noun="void",
        subject="the original",
        done="reversed",
        approved=REVERSALS[None],
        undone="nothing was reversed, and the original stands as before",
    ),
}

#: For a type that is not known: of what another database lost, or of a later version.
UNKNOWN = Operation(
    noun="transaction",
    subject="it",
    done="approved",
    approved="It was approved. What it was (a charge, a void, ...) is not known here: look at the receipt.",
    undone="it charged and changed nothing",
    followed_by="a void",
)


def words_of(transaction: Mapping[str, Any]) -> Operation:
    """Return the words for the type of a transaction."""
    return OPERATIONS.get(transaction["type"], UNKNOWN)


def approval(transaction: Mapping[str, Any]) -> str:
    """Return what the approval of a transaction means, in one or two sentences."""
    if transaction["type"] == "void":
        reversal = transaction["outcome"]["reversal"]
        return REVERSALS.get(reversal, f"The original was reversed: {reversal}.")
    return words_of(transaction).approved
