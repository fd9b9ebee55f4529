"""Replies to the start, searches and events beside each other (design 4 step 5, design 6)."""

from collections.abc import Sequence
from typing import Any

from tests.vectors.case import Case
from tests.vectors.tables.sequence_steps import APPROVED, OUTCOMES, event, search, sequence, stands, start
from tests.vectors.wire import ACK, APPROVAL, CANCELED, DECLINED, REQUESTED

NOT_STARTED: dict[str, Any] = {
    "result": "not_started",
    "status": None,
    "transaction_reference": None,
    "reached_acquirer": False,
    "evidence": ["refusal"],
    "supersedes": None,
}


def starts() -> list[Case]:
    """Return what the reply to the start makes of the events, and they of it."""
    source = "design 4 step 5 (an event can be faster than the reply, and beats it), design 5"
    found: list[Case] = []

    def add(name: str, about: str, steps: Sequence[dict[str, str]], expect: dict[str, Any]) -> None:
        found.append(sequence(f"start-{name}", about, steps, expect, source))

    path = [event(letter) for letter in "ACRF"]
    yes = ["applied"] * 4
    lost, refused, unsent = start("transport-lost"), start("refused-409"), start("transport-not-sent")
    corrected = ["outcome_corrected"]
    add("lost", "no reply came: in doubt", [lost], stands(None, None, ["in_doubt"], phase="in_doubt"))
    add(
        "lost-then-acknowledged",
        "no reply came, but the first event",
        [lost, event("A")],
        stands(ACK, None, (), ["applied"]),
    )
    add("lost-then-all", "no reply came, but all events", [lost, *path], stands(APPROVAL, APPROVED, (), yes))
    add(
        "lost-then-final",
        "no reply came, but the final",
        [lost, event("F")],
        stands(APPROVAL, APPROVED, ["gap"], ["applied"]),
    )
    add("refused", "refused", [refused], stands(None, NOT_STARTED))
    add("unsent", "not sent", [unsent], stands(None, NOT_STARTED | {"evidence": ["unsent"]}))
    for name, reply in (("refused", refused), ("unsent", unsent)):
        add(
            f"{name}-then-acknowledged",
            "what was inferred is withdrawn by the first event",
            [reply, event("A")],
            stands(ACK, None, corrected, ["applied"], next_step="ask_person"),
        )
        add(
            f"{name}-then-all",
            "what the terminal says supersedes what was inferred",
            [reply, *path],
            stands(APPROVAL, APPROVED | {"supersedes": "not_started"}, corrected, yes, next_step="ask_person"),
        )
        add(
            f"{name}-then-final",
            "the same by the final alone",
            [reply, event("F")],
            stands(
                APPROVAL,
                APPROVED | {"supersedes": "not_started"},
                [*corrected, "gap"],
                ["applied"],
                next_step="ask_person",
            ),
        )
        add(
            f"acknowledged-then-{name}",
            "the event was faster: the reply proves nothing any more",
            [event("A"), reply],
            stands(ACK, None, (), ["applied"]),
        )
        add(
            f"final-then-{name}",
            "the final was faster",
            [event("F"), reply],
            stands(APPROVAL, APPROVED, ["gap"], ["applied"]),
        )
    add(
        "acknowledged-then-lost",
        "the event was faster than the loss",
        [event("A"), lost],
        stands(ACK, None, (), ["applied"]),
    )
    add(
        "acknowledged-then-500",
        "the event was faster than an HTTP 500",
        [event("A"), start("doubt-500")],
        stands(ACK, None, (), ["applied"]),
    )
    add(
        "final-then-acknowledgement",
        "an acknowledgement never reopens a final",
        [*path, start()],
        stands(APPROVAL, APPROVED, (), yes),
    )
    add("final-then-lost", "the final was faster than the loss", [*path, lost], stands(APPROVAL, APPROVED, (), yes))
    add(
        "acknowledgement-alone",
        "acknowledged, and nothing came: an acknowledgement is not a result",
        [start()],
        stands(ACK, None),
    )
    add(
        "other-id-then-acknowledged",
        "acknowledged for another id, but the first event came",
        [start("id-another"), event("A")],
        stands(ACK, None, (), ["applied"]),
    )
    add(
        "two-states-then-acknowledged",
        "an acknowledgement that says two things, but the first event came",
        [start("twice-status"), event("A")],
        stands(ACK, None, (), ["applied"]),
    )
    add(
        "500-then-canceled",
        "HTTP 500, but it ran and was canceled",
        [start("doubt-500"), event("A"), event("X")],
        stands(CANCELED, OUTCOMES["X"], (), ["applied", "applied"]),
    )
    add(
        "other-serial-then-all",
        "another device acknowledged",
        [start("serial-another"), *path],
        stands(APPROVAL, APPROVED, ["serial_mismatch"], yes),
    )
    return found


def searches() -> list[Case]:
    """Return what searches make of a payment, with and without events."""
    source = "design 6; design 5 (what a terminal says beats what was inferred)"
    found: list[Case] = []

    def add(name: str, about: str, steps: Sequence[dict[str, str]], expect: dict[str, Any]) -> None:
        found.append(sequence(f"search-{name}", about, steps, expect, source))

    lost, by_search = start("transport-lost"), APPROVED | {"evidence": ["search"]}
    both = APPROVED | {"evidence": ["search", "event"]}
    none = search("none")
    add(
        "final",
        "in doubt, and the search knows the final",
        [lost, search("found-approval")],
        stands(APPROVAL, by_search),
    )
    add(
        "final-then-event",
        "and then the final event comes: one final, two proofs",
        [lost, search("found-approval"), event("F")],
        stands(APPROVAL, both, (), ["after_final"]),
    )
    add(
        "event-then-final",
        "the final event, and then the search says the same",
        [start(), *map(event, "ACRF"), search("found-approval")],
        stands(APPROVAL, APPROVED | {"evidence": ["event", "search"]}, (), ["applied"] * 4),
    )
    add(
        "final-then-another",
        "an event states another reference",
        [lost, search("found-approval"), event("valid-approval-another-reference")],
        stands(APPROVAL, by_search, ["conflicting_final"], ["after_final"], next_step="ask_person"),
    )
    add(
        "declined-then-approval",
        "the search says declined, an event approved",
        [lost, search("found-declined"), event("F")],
        stands(
            DECLINED,
            OUTCOMES["D"] | {"evidence": ["search"]},
            ["conflicting_final"],
            ["after_final"],
            next_step="ask_person",
        ),
    )
    add(
        "approval-then-declined",
        "an event says approved, the search declined",
        [start(), *map(event, "ACRF"), search("found-declined")],
        stands(APPROVAL, APPROVED, ["conflicting_final"], ["applied"] * 4, next_step="ask_person"),
    )
    add(
        "no-reference-then-event",
        "the search lacks the reference, the event completes it",
        [lost, search("found-without-raw-response"), event("F")],
        stands(APPROVAL, both, (), ["after_final"]),
    )
    add(
        "none",
        "in doubt, and the search knows nothing: that alone proves nothing",
        [lost, none, none, none],
        stands(None, None, ["in_doubt"], phase="in_doubt"),
    )
    add("none-acknowledged", "acknowledged: it never becomes not_started", [start(), none, none], stands(ACK, None))
    add("none-after-event", "an event came: the same", [lost, event("A"), none], stands(ACK, None, (), ["applied"]))
    for name in ("404", "500", "html", "others", "id-damaged"):
        add(
            f"no-answer-{name}",
            "no answer: nothing changes",
            [lost, search(f"no-answer-{name}")],
            stands(None, None, ["in_doubt"], phase="in_doubt"),
        )
    add(
        "closes-gap",
        "the final is said twice: nothing that matters is missing",
        [start(), *map(event, "ACF"), search("found-approval")],
        stands(APPROVAL, APPROVED | {"evidence": ["event", "search"]}, (), ["applied"] * 3),
    )
    add(
        "state-then-event",
        "a state that a search reports counts as reached",
        [start(), event("A"), search("found-card"), event("R")],
        stands(REQUESTED, None, (), ["applied", "applied"]),
    )
    add(
        "stale",
        "a search that is behind the events changes nothing",
        [start(), *map(event, "ACR"), search("found-card")],
        stands(REQUESTED, None, (), ["applied"] * 3),
    )
    add(
        "stale-after-final",
        "the same after the final",
        [start(), *map(event, "ACRF"), search("found-card")],
        stands(APPROVAL, APPROVED, (), ["applied"] * 4),
    )
    add(
        "corrects-refusal",
        "refused, and yet the search knows an approval",
        [start("refused-409"), search("found-approval")],
        stands(APPROVAL, by_search | {"supersedes": "not_started"}, ["outcome_corrected"], next_step="ask_person"),
    )
    add(
        "none-after-refusal",
        "refused, and the search knows nothing",
        [start("refused-409"), none],
        stands(None, NOT_STARTED),
    )
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*starts(), *searches()]
