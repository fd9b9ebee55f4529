"""Orders, losses, repetitions and presentations: what disorder makes of a payment (spec 6.2, 6.3; design 5)."""

from collections.abc import Iterable, Sequence
from itertools import combinations, permutations

from tests.vectors.case import Case
from tests.vectors.tables.sequence_steps import (
    APPROVED,
    EVENTS,
    OUTCOMES,
    RANKS,
    WORDS,
    event,
    sequence,
    stands,
    start,
    verdicts_of,
)
from tests.vectors.wire import ACK, APPROVAL


def _order(name: str, about: str, letters: Sequence[str]) -> Case:
    """Return the vector of an order of different events."""
    states = {EVENTS[letter][1] for letter in letters}
    named = {EVENTS[letter][2] for letter in letters} - {None}
    gap = ["gap"] if named - states else []
    final = next((letter for letter in letters if letter in OUTCOMES), None)
    newest = EVENTS[final][1] if final else max(states, key=lambda state: RANKS[state])
    expect = stands(newest, OUTCOMES[final] if final else None, gap, verdicts_of(letters))
    return sequence(name, about, [start(), *map(event, letters)], expect, "spec 6.2, 6.3; design 5 (lifecycle rules)")


def named(letters: Iterable[str]) -> str:
    return "-".join(WORDS[letter] for letter in letters)


def orders() -> list[Case]:
    """Return every order of an approval's four events, and disorders of the other ends."""
    found = [
        _order(f"order-{named(letters)}", "all four events of an approval came, in this order", letters)
        for letters in permutations("ACRF")
    ]
    for path in ("ACRD", "AX", "ACY", "AJ", "ACK"):
        name = {"ACY": "canceled-after-card", "ACK": "rejected-after-card"}.get(path, WORDS[path[-1]])
        found.append(_order(f"end-{name}", "all its events, in order", path))
        found.append(_order(f"end-{name}-reversed", "all its events, the last one first", path[::-1]))
        found.append(
            _order(f"end-{name}-final-first", "the final came first, the others after it", path[-1] + path[:-1])
        )
    return found


def losses() -> list[Case]:
    """Return every loss of events that are no final, in order and reversed, and payments without a final."""
    found = []
    for final in "FD":
        for count in range(3):
            for kept in combinations("ACR", count):
                letters = (*kept, final)
                lost = named(letter for letter in "ACR" if letter not in kept)
                end = WORDS[final]
                found.append(_order(f"lost-{lost}-{end}", f"lost: {lost}", letters))
                if count:
                    found.append(
                        _order(f"lost-{lost}-{end}-reversed", f"lost: {lost}; the rest reversed", letters[::-1])
                    )
    some = "only these came of a cancellation or rejection"
    ends = ("X", "Y", "AY", "CY", "J", "K", "AK", "CK")
    found += [_order(f"lost-{'-'.join(letters).lower()}", some, letters) for letters in ends]
    opened = ("A", "AC", "ACR", "C", "R", "AR", "CR", "CA", "RA", "RC", "RCA", "CRA", "RAC", "ARC", "CAR")
    found += [_order(f"open-{named(letters)}", "no final came: it stays open", letters) for letters in opened]
    return found


def duplicates() -> list[Case]:
    """Return repetitions: exact ones, and other bytes under a used event_id."""
    source = "spec 6.2 (at least once), 6.3 rule 1; design 5"
    found = []
    for letters in ("AACCRRFF", "ACRFACRF", "ACRFFFF", "AAAAACRF", "FRCAFRCA", "ACRRCAF", "ACRDACRD", "AXAX"):
        verdicts: list[str] = []
        first = list(dict.fromkeys(letters))
        once = dict(zip(first, verdicts_of(first), strict=True))
        seen: set[str] = set()
        for letter in letters:
            verdicts.append("repeat" if letter in seen else once[letter])
            seen.add(letter)
        final = first[-1] if first[-1] in OUTCOMES else first[0]
        found.append(
            sequence(
                f"repeat-{letters.lower()}",
                "events came more than once, with the same bytes: nothing new",
                [start(), *map(event, letters)],
                stands(EVENTS[final][1], OUTCOMES[final], (), verdicts),
                source,
            )
        )
    reused = ["event_id_reused"]
    found += [
        sequence(
            "reused-acknowledged",
            "the event_id of the first event with other bytes",
            [start(), event("A"), event("valid-acknowledged-other-bytes")],
            stands(ACK, None, reused, ["applied", "duplicate"], next_step="ask_person"),
            source,
        ),
        sequence(
            "reused-approval",
            "the event_id of the final with other bytes: the first stands, it is no second final",
            [start(), *map(event, "ACRF"), event("valid-approval-other-bytes")],
            stands(APPROVAL, APPROVED, reused, ["applied"] * 4 + ["duplicate"]),
            source,
        ),
        sequence(
            "reused-hides-approval",
            "an approval under a used event_id is not applied, and a person is asked",
            [start(), event("A"), event("valid-approval-used-event-id")],
            stands(ACK, None, reused, ["applied", "duplicate"], next_step="ask_person"),
            source,
        ),
        sequence(
            "reused-then-approval",
            "the first event under two event_ids: no more than late",
            [start(), event("A"), event("valid-acknowledged-again"), *map(event, "CRF")],
            stands(APPROVAL, APPROVED, (), ["applied", "late", "applied", "applied", "applied"]),
            source,
        ),
    ]
    return found


def presentations() -> list[Case]:
    """Return payments whose card was presented more than once."""
    second, third = "valid-card-second", "valid-card-third"
    source = "spec 3.1 (the number of events is not fixed)"

    def case(name: str, about: str, names: Sequence[str], verdicts: Sequence[str], *attention: str) -> Case:
        expect = stands(APPROVAL, APPROVED, attention, verdicts)
        return sequence(f"card-{name}", about, [start(), *map(event, names)], expect, source)

    yes = "applied"
    return [
        case("twice", "presented twice", ("A", "C", second, "R", "F"), [yes] * 5),
        case("three-times", "presented three times", ("A", "C", second, third, "R", "F"), [yes] * 6),
        case(
            "second-first",
            "the second presentation came before the first",
            ("A", second, "C", "R", "F"),
            [yes, yes, "late", yes, yes],
        ),
        case(
            "second-after-request",
            "the second presentation came late",
            ("A", "C", "R", second, "F"),
            [yes, yes, yes, "late", yes],
        ),
        case(
            "second-after-final",
            "the second presentation came after the final",
            ("A", "C", "R", "F", second),
            [yes, yes, yes, yes, "after_final"],
        ),
        case(
            "first-lost",
            "the first presentation is lost: the second names a state that was not reached",
            ("A", second, "R", "F"),
            [yes] * 4,
            "gap",
        ),
        case("second-lost", "the second presentation is lost, unseen", ("A", "C", third, "R", "F"), [yes] * 5),
    ]


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*orders(), *losses(), *duplicates(), *presentations()]
