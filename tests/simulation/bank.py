"""The acquirer, who knows the truth: which request reached a terminal, which customer was charged, what was said."""

from dataclasses import dataclass, field
from decimal import Decimal

FINALS = ("APPROVAL", "DECLINED", "TERMINAL_REJECTED", "TERMINAL_CANCELED")

#: The terminal's final -> posd's result (spec 3.1).
RESULTS = {
    "APPROVAL": "approved",
    "DECLINED": "declined",
    "TERMINAL_REJECTED": "rejected",
    "TERMINAL_CANCELED": "canceled",
}


@dataclass
class Truth:
    """What is true of one id."""

    identity: str
    amount: Decimal = Decimal()
    #: Serials of the terminals that a start reached.
    starts: list[str] = field(default_factory=list)
    #: How it ended at the terminal, None while it runs or where it never ran.
    end: str | None = None
    #: Finals that a terminal has sent to posd, whether it was acknowledged or not, and in answers to a search.
    said: list[str] = field(default_factory=list)
    #: Words of a person.
    words: list[str] = field(default_factory=list)
    #: posd was told that it does not run: by a refusal, or by a connection that was not made.
    refused: bool = False
    #: The terminal said something that is not so.
    lied: bool = False
    #: Bodies that posd has acknowledged by a 2xx.
    acknowledged: list[bytes] = field(default_factory=list)

    @property
    def charged(self) -> bool:
        """Whether the customer was charged."""
        return self.end == "APPROVAL"


@dataclass
class Bank:
    """The truths, by id."""

    truths: dict[str, Truth] = field(default_factory=dict)

    def of(self, identity: str) -> Truth:
        """Return the truth of an id."""
        return self.truths.setdefault(identity, Truth(identity))
