"""Messages of lanes that try to harm other lanes. Any field of any message is replaced, repeated, cut or copied from
another lane.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

from tests.collect.life import life
from tests.fuzz.mutation import Literal, Members, Place, places, tree, write

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
OTHERS: tuple[str, ...] = (
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


def members(root: list[Any]) -> Iterator[tuple[str, Place]]:
    """Yield the place of each member below a container, with the member's name."""
    for place in places(root):
        if isinstance(place.holder, Members):
            yield place.holder[place.at][0], place


class HostileLanes:
    """Lanes that send without end, each on its own subject. `known`: messages of other lanes that these lanes can
    copy.
    """

    def __init__(self, seed: int, known: Sequence[dict[str, Any]]) -> None:
        self._random = Random(seed)
        self._known = known
        #: Name of a field -> messages, once for each place of the field in the message.
        self._with = defaultdict[str, list[dict[str, Any]]](list)
        for message in (message for number in range(4) for message in life(seed + number, f"bad-{number}").sent):
            for name, _ in members([tree(message)]):
                self._with[name].append(message)
        sharp, other = (list(product(sorted(self._with), literals)) for literals in (SHARP, OTHERS))
        self._random.shuffle(sharp)
        self._random.shuffle(other)
        #: Each field gets each literal, then random values.
        self._left = [*other, *sharp]

    def messages(self, known: int) -> Iterator[Sent]:
        """Yield messages. The first known messages were already sent."""
        while True:
            name, literal = self._left.pop() if self._left else (self._random.choice(sorted(self._with)), None)
            message = self._random.choice(self._with[name])
            root = [tree(message)]
            if literal is None:
                for _ in range(self._random.choice((0, 1, 1, 2, 5))):
                    self._harm(root, known)
            else:
                place = self._random.choice([place for found, place in members(root) if found == name])
                place.holder[place.at] = place.like(Literal(literal))
            data = write(root[0], ascii_only=self._random.random() < 0.5).encode()
            yield f"posd.{message['merchant']}.{message['lane']}", self._damaged(data) if literal is None else data

    def _harm(self, root: list[Any], known: int) -> None:
        """Replace, remove or repeat one value at any place, or copy a value from another lane."""
        holder, at = place = self._random.choice([*places(root)][1:])
        match self._random.randrange(6):
            case 0:
                del holder[at]
            case 1 if known:
                self._steal(place, self._known[self._random.randrange(known)])
            case 2 if not isinstance(holder, Members):
                holder.append(holder[0])
            case _:
                holder[at] = place.like(Literal(self._random.choice((*SHARP, *OTHERS))))

    def _steal(self, place: Place, other: dict[str, Any]) -> None:
        holder, at = place
        if isinstance(holder, Members):
            name = self._random.choice(("database_id", "merchant", "lane", "changes", "previous", "id"))
            holder[:] = (dict(holder) | {name: tree(other.get(name, other["database_id"]))}).items()
        else:
            holder[at] = tree(other)

    def _damaged(self, data: bytes) -> bytes:
        """Return the data, which is rarely cut, replaced or changed in one byte."""
        at = self._random.randrange(len(data))
        match self._random.randrange(40):
            case 0:
                return data[:at]
            case 1:
                return self._random.randbytes(self._random.randrange(200))
            case 2:
                return data[:at] + self._random.randbytes(1) + data[at + 1 :]
        return data
