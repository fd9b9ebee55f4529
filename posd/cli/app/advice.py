"""What a person does about an attention, about a reservation and about a refusal: in words, and commands to type."""

from collections.abc import Iterable, Mapping
from typing import Any

from posd.cli.explain.catalogue import Advice, advice, chosen, language, say
from posd.cli.payments.words import words_of

#: attentions whose advice ends with how to settle the payment.
SETTLED_BY = frozenset({"in_doubt", "released", "address_changed"})
#: how the daemon writes what a till sends -> what a person types instead.
SPELLINGS: Mapping[str, str] = {
    '"additional": true': "--additional",
    "`transaction_reference`": "--reference UUID",
}


def check_words(name: str, check: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a health check says, and what to do: the daemon's words, in Spanish the catalogue's first."""
    if language() == "en" or check["status"] == "ok":
        return check["detail"], check["todo"]
    row = chosen("check")[name]
    todo = "; ".join((row["do"].rstrip(":").replace("; ", ", "), *row["commands"]))
    return say("status", "detail", comes=row["comes"], detail=check["detail"]), todo


def explained_by(codes: Iterable[str]) -> str:
    """Return the command that says what codes mean, each of them once."""
    return say("payment", "more", codes=" ".join(dict.fromkeys(codes)))


def known_advice(code: str) -> Advice:
    """Return a row of [advice]."""
    found = advice("advice", code)
    assert found is not None  # noqa: S101 - a test reads them all
    return found


def is_known(found: Advice) -> bool:
    """Whether an advice is of a code that this version knows."""
    return found.words != known_advice("unknown").words


def attention_advice(code: str, transaction: Mapping[str, Any]) -> Advice:
    """Return what to do about an attention of a transaction of that type."""
    found = advice("attention", code) or known_advice("unknown")
    if code == "stalled" and not transaction["abortable"]:
        found = known_advice("not_abortable")
    # The id is left to who knows how much of it has to be written.
    serial = str(transaction["terminal"]).replace("{", "{{").replace("}", "}}")
    words = words_of(transaction).fill(found.words)
    return Advice(words, tuple(each.replace("SERIAL", serial) for each in found.commands))


def settling(transaction: Mapping[str, Any]) -> Advice | None:
    """Return how a person settles an open transaction, None of one that no person has to look at."""
    if transaction["outcome"] is not None or transaction["next_step"] != "ask_person":
        return None
    found = known_advice("settle")
    return found._replace(words=words_of(transaction).fill(found.words))


def next_step(transaction: Mapping[str, Any]) -> Advice:
    """Return what is to be done about a transaction now."""
    step = transaction["next_step"]
    name = _reservation(transaction)
    if step == "done" and name is not None:
        untouched = transaction["type"] == "pre-auth" and not transaction["derived"]
        reserved = known_advice("reserved")
        words = reserved.words + ("" if untouched else chosen("advice")["reserved"]["unless"]) + "."
        return Advice(words, tuple(command.format(name=name) for command in reserved.commands))
    words = chosen("next").get(step, {}).get("do")
    return Advice(words_of(transaction).fill(words) if words else step)


def refused_step(step: str) -> str:
    """Return what to do about a refusal, where the id may have been started before."""
    steps = chosen("next")
    found: str = steps.get(step, {}).get("refused") or steps["ask_person"]["refused"]
    return found


def _reservation(transaction: Mapping[str, Any]) -> str | None:
    """Return how a command names what an approval reserved, None if it reserves nothing.

    The pre-authorization's id is best: it stands for the newest reference.
    """
    originals = {"pre-auth": transaction["client_transaction_id"], "re-auth": transaction["original"]}
    if transaction["outcome"] is None or transaction["type"] not in originals:
        return None
    reference = transaction["outcome"]["transaction_reference"]
    original = originals[transaction["type"]]
    return original if original and reference else f"--reference {reference or 'UUID'}"
