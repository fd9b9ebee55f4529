"""Messages of lanes that try to harm other lanes. Any field of any message is replaced, repeated, cut or copied from
another lane.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from posd.base.json_types import Place, parts
from tests.collect.life import life

Sent = tuple[str, bytes]

_RANDOM = Random(1)
#: JSON literals, and texts in the form of literals. The generator puts these values into every field first.
SHARP: tuple[str, ...] = (
    json.dumps(_RANDOM.randbytes(1352).hex()),
    *(
        '"NaN"',
        "1e200000",
        '"infinity"',
        '"9999-12-31T23:59:59-12:00"',
        '"2026-11-20T12:00:00+99:99"',
        '"2026-11-20T12:00:00-23:59"',
    ),
)
LITERALS: tuple[str, ...] = (
    *SHARP,
    *("null", "true", "[]", "{}", '""', "0", "-1", "1.5", "-0.0", "NaN", "Infinity", "-Infinity"),
    *("2147483648", "9223372036854775806", "9223372036854775807", "9223372036854775808", "18446744073709551616"),
    *("9" * 400, "9" * 5000, "0." + "1" * 20000, "1e400", "-1e-20000", "1e99999999999999999999", "0e5000"),
    *('"-Infinity"', '"1e131071"', '"1_0"', '" 1 "', '"0x1F"', '"' + "9" * 200 + '"'),
    '"' + "9" * 25 + "." + "9" * 74 + '"',
    *('"now"', '"noon"', '"2026-11-20"', '"10000-01-01T00:00:00Z"'),
    *('"0001-01-01T00:00:00+14:00"', '"2026-11-20T24:61:00Z"', '"2026-02-30T00:00:00Z"'),
    *('"a\\u0000b"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u202e\\u001b[2J\\n\\t\\\\."', '"posd.m1.good-0"'),
    json.dumps(_RANDOM.randbytes(100_000).hex()),
    json.dumps("".join(map(chr, _RANDOM.choices(range(0x10000, 0x20000), k=1024))), ensure_ascii=False),
    json.dumps("".join(map(chr, _RANDOM.choices(range(0x10000, 0x20000), k=128))), ensure_ascii=False),
    *("[" * levels + "]" * levels for levels in (100, 200, 2000, 100_000)),
    '{"a": 1, "a": 1e200000}',
    '["in_doubt", "in_doubt"]',
    json.dumps([f"code {number}" for number in range(200)]),
)


def within(message: dict[str, Any], place: Place) -> Any:
    """Return the object or array that contains a place of a message."""
    found: Any = message
    for step in place[:-1]:
        found = found[step]
    return found


class HostileLanes:
    """Lanes that send without end, each on its own subject. `known`: messages of other lanes that these lanes can
    copy.
    """

    def __init__(self, seed: int, known: Sequence[dict[str, Any]]) -> None:
        self._random = Random(seed)
        self._known = known
        lives = [life(seed + number, f"bad-{number}").sent for number in range(4)]
        #: Name of a field -> (message, place in the message).
        self._places: dict[str, list[tuple[dict[str, Any], Place]]] = {}
        for message in (message for sent in lives for message in sent):
            for place, _ in parts(message):
                if place and isinstance(name := place[-1], str):
                    self._places.setdefault(name, []).append((message, place))
        names = sorted(self._places)
        sharp, other = (
            [(name, number) for name in names for number in numbers]
            for numbers in (range(len(SHARP)), range(len(SHARP), len(LITERALS)))
        )
        self._random.shuffle(sharp)
        self._random.shuffle(other)
        #: Each field gets each literal, then random values.
        self._left = [*other, *sharp]

    def messages(self, known: int) -> Iterator[Sent]:
        """Yield messages. The first known messages were already sent."""
        while True:
            name, literal = self._left.pop() if self._left else (self._random.choice(sorted(self._places)), None)
            found, place = self._random.choice(self._places[name])
            message = copy.deepcopy(found)
            if literal is not None:
                within(message, place)[place[-1]] = f"LITERAL {literal}"
            for _ in range(0 if literal is not None else self._random.choice((0, 1, 1, 2, 5))):
                self._harm(message, known)
            yield f"posd.{found['merchant']}.{found['lane']}", self._written(message, literal)

    def _harm(self, message: dict[str, Any], known: int) -> None:
        """Replace, remove or repeat one value at any place, or copy a value from another lane."""
        place = self._random.choice([place for place, _ in parts(message) if place])
        inner = within(message, place)
        match self._random.randrange(6):
            case 0:
                del inner[place[-1]]
            case 1 if known:
                self._steal(inner, place, known)
            case 2 if isinstance(inner, list):
                inner.append(copy.deepcopy(inner[0]))
            case _:
                inner[place[-1]] = f"LITERAL {self._random.randrange(len(LITERALS))}"

    def _steal(self, inner: Any, place: Place, known: int) -> None:
        other = self._known[self._random.randrange(known)]
        name = self._random.choice(("database_id", "merchant", "lane", "changes", "previous", "id"))
        if isinstance(inner, dict):
            inner[name] = copy.deepcopy(other.get(name, other["database_id"]))
        else:
            inner[place[-1]] = copy.deepcopy(other)

    def _written(self, message: dict[str, Any], literal: int | None) -> bytes:
        text = json.dumps(message, ensure_ascii=self._random.random() < 0.5)
        for number in reversed(range(len(LITERALS))):
            text = text.replace(f'"LITERAL {number}"', LITERALS[number])
        data = text.encode()
        match self._random.randrange(40) if literal is None else None:
            case 0:
                return data[: self._random.randrange(len(data))]
            case 1:
                return self._random.randbytes(self._random.randrange(200))
            case 2:
                at = self._random.randrange(len(data))
                return data[:at] + self._random.randbytes(1) + data[at + 1 :]
        return data
