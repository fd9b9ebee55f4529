"""The bodies of what people decide (local API: release, resolve, acknowledge): reading and checking."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from posd.base.ids import canonical_uuid
from posd.base.json_types import Object, Uuid, decode
from posd.payments.entries import Dismissed, Released, Resolved
from posd.payments.model import AttentionCode, Result
from posd.records.request import (
    MAX_NOTE_CHARACTERS,
    MAX_OPERATOR_CHARACTERS,
    Fault,
    MalformedJson,
    Signed,
    pointer_token,
)

Decision = Released | Resolved | Dismissed


class Resolution(Signed, frozen=True):
    """A person says how it ended."""

    result: Annotated[Result, Meta(description="how")]
    transaction_reference: Annotated[Uuid | None, Meta(description="the acquirer's, of an approval alone")] = None


class Acknowledgement(Signed, frozen=True):
    """A person closes an attention."""

    code: Annotated[AttentionCode, Meta(description="which")]


class _Reader:
    """Reads the fields of one body, and collects what is wrong with them."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members
        self.faults: list[Fault] = []

    def text(self, name: str, limit: int) -> str:
        value = self.members.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > limit:
            self.faults.append(Fault(f"/{name}", f"is required: a text of 1 to {limit} characters"))
            return ""
        return value.strip()

    def one_of(self, name: str, words: type[Result] | type[AttentionCode]) -> Any:
        try:
            return words(str(self.members.get(name)))
        except ValueError:
            self.faults.append(Fault(f"/{name}", f"is required: one of {', '.join(words)}"))
            return next(iter(words))

    def uuid(self, name: str) -> str | None:
        value = self.members.get(name)
        canonical = canonical_uuid(value) if isinstance(value, str) else None
        if value is not None and canonical is None:
            self.faults.append(Fault(f"/{name}", "must be a UUID"))
        return canonical


def _release(_reader: _Reader, operator: str, note: str, uid: int | None) -> Released:
    return Released(operator, note, uid)


def _resolve(reader: _Reader, operator: str, note: str, uid: int | None) -> Resolved:
    result = reader.one_of("result", Result)
    reference = reader.uuid("transaction_reference")
    if reference is not None and result is not Result.APPROVED:
        reader.faults.append(Fault("/transaction_reference", "belongs to the result approved alone"))
    return Resolved(operator, note, uid, result, reference)


def _acknowledge(reader: _Reader, operator: str, note: str, uid: int | None) -> Dismissed:
    return Dismissed(operator, note, uid, reader.one_of("code", AttentionCode))


#: call -> how its body is read, and its type.
CALLS: Mapping[str, tuple[Callable[[_Reader, str, str, int | None], Decision], type[Signed]]] = {
    "release": (_release, Signed),
    "resolve": (_resolve, Resolution),
    "acknowledge": (_acknowledge, Acknowledgement),
}


def read_decision(call: str, body: bytes, uid: int | None) -> tuple[Decision, tuple[Fault, ...]]:
    """Read the body of a call of `CALLS`: the decision, and what is wrong with it. Raise MalformedJson.

    `uid` is the user id of the process that called, None where the kernel did not say.
    """
    try:
        document = decode(body)
    except ValueError as error:
        raise MalformedJson(str(error)) from error
    read, kind = CALLS[call]
    fields = kind.__struct_fields__
    reader = _Reader(document if isinstance(document, Object) else {})
    if not isinstance(document, Object):
        reader.faults.append(Fault("", "must be a JSON object"))
    else:
        for name in document:
            if name not in fields:
                message = f"is not a field of this call; fields are {', '.join(fields)}"
                reader.faults.append(Fault(f"/{pointer_token(name)}", message))
        for name in sorted(document.repeated):
            reader.faults.append(Fault(f"/{pointer_token(name)}", "stands more than once, with different values"))
    decision = read(
        reader, reader.text("operator", MAX_OPERATOR_CHARACTERS), reader.text("note", MAX_NOTE_CHARACTERS), uid
    )
    return decision, tuple(reader.faults)
