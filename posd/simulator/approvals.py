"""What the acquirer has approved, by reference, and what can still be done to it.

Which references a terminal refuses, and with what words, is not published: these rules are the simulator's own. They
are strict, so that a caller which mixes references up is told here and not by a real acquirer.

| what is refused                                                             | code                              |
| --------------------------------------------------------------------------- | --------------------------------- |
| a reference that no approval of this terminal has                           | UNKNOWN_REFERENCE                 |
| an approval to which the operation is not done (its `originals`)            | REFERENCE_DOES_NOT_FIT            |
| one to which something was done that rules it out (its `not_after`)         | ALREADY_ and that one's `done`    |
| one that a re-authorization has replaced, but the first one for a further   | REFERENCE_SUPERSEDED              |
| re-authorization                                                            |                                   |
"""

from dataclasses import dataclass, field
from http import HTTPStatus

from posd.simulator.amounts import Processed
from posd.simulator.operations import BY_NAME, Operation
from posd.simulator.request import Refused


@dataclass(frozen=True, slots=True)
class Approval:
    """An operation that the acquirer approved; `original` is the reference that its request sent, if any."""

    operation: Operation
    reference: str
    original: str | None
    amount: Processed


@dataclass(slots=True)
class _Chain:
    """An approval with those that took its place, the newest last, and the names of what was done to any of them."""

    approvals: list[Approval]
    done: set[str] = field(default_factory=set)


class Approvals:
    """Approvals by reference; a reference is the same in upper and lower case."""

    def __init__(self) -> None:
        self._chains: dict[str, _Chain] = {}

    def add(self, approval: Approval) -> None:
        """Note an approval; it was found fit before by `original`."""
        original = None if approval.original is None else self._chains.get(approval.original.lower())
        if original is not None:
            original.done.add(approval.operation.name)
        if original is not None and approval.operation.renews:
            original.approvals.append(approval)
            chain = original
        else:
            chain = _Chain([approval])
        self._chains[approval.reference.lower()] = chain

    def original(self, operation: Operation, reference: str) -> Approval:
        """Return the approval to which the operation can be done. Raises Refused (422), see the table above."""
        chain = self._chains.get(reference.lower())
        if chain is None:
            raise _refused("UNKNOWN_REFERENCE", f"transaction_reference {reference} is of no approval here")
        original = next(item for item in chain.approvals if item.reference.lower() == reference.lower())
        if original.operation.name not in operation.originals:
            raise _refused(
                "REFERENCE_DOES_NOT_FIT",
                f"transaction_reference {reference} is of a {original.operation.name}; "
                f"a {operation.name} is done to: {', '.join(operation.originals)}",
            )
        for name in operation.not_after:
            if name in chain.done:
                done = BY_NAME[name].done
                raise _refused(
                    f"ALREADY_{done.upper()}", f"the {original.operation.name} {reference} was {done} already"
                )
        newest = chain.approvals[-1]
        if original is not newest and not (operation.renews and original is chain.approvals[0]):
            raise _refused(
                "REFERENCE_SUPERSEDED",
                f"transaction_reference {reference} was replaced by that of a newer {newest.operation.name}, "
                f"{newest.reference}",
            )
        return original


def _refused(code: str, message: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, code, message)
