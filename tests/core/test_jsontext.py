"""JSON from outside. The permitted depth does not depend on the stack."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import MAX_DEPTH, TooDeep, decode, deeper_than
from tests.rig.tables import every


@every(
    ("text", "reason"),
    [
        (b" \n", "it is empty"),
        (b'"\xff"', "it is not UTF-8"),
        (b'{"a": [1, "\\ud800"]}', "/a/1 has half of a surrogate pair"),
        (b'{"\\ud800": 1}', "has half of a surrogate pair"),
        (b'{"a": ' + b"9" * 4301 + b"}", "/a has more than 4300 digits"),
        (b'{"a": ' + b"9" * 4300 + b', "b": "\\ud800"}', "/b has half of a surrogate pair"),
        (b'[NaN, "\\ud800"]', "it is not JSON"),
    ],
)
def test_refused_json_has_its_reason_with_the_place(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(text)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (b"7", 0),
        (b'"[[[["', 0),
        (b'"\\"[[[["', 0),
        (b'"\\\\"', 0),
        (b"[]", 1),
        (b"[[], [], []]", 2),
        (b'{"a": [{"b": 1}], "c": [1, 2]}', 3),
        (b'{"\\\\": [[]], "[\\"[": "{{{"}', 3),
    ],
)
def test_brackets_inside_strings_do_not_count_as_levels(text: bytes, levels: int) -> None:
    assert not deeper_than(text, levels)
    if levels:
        assert deeper_than(text, levels - 1)


@given(st.recursive(st.text(alphabet='[]{}"\\a') | st.integers(), lambda inner: st.lists(inner, max_size=4)))
def test_nesting_of_any_depth_is_counted(document: object) -> None:
    def levels(value: object) -> int:
        return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0

    text = json.dumps(document).encode()
    assert not deeper_than(text, levels(document))
    assert levels(document) == 0 or deeper_than(text, levels(document) - 1)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_the_deepest_permitted_json_is_read_at_any_stack_depth(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    deepest = (opening * MAX_DEPTH + "1" + closing * MAX_DEPTH).encode()

    def from_below(frames: int) -> object:
        return from_below(frames - 1) if frames else decode(deepest)

    assert from_below(300) == decode(deepest)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 900, 100_000])
def test_deeper_json_is_refused(levels: int) -> None:
    with pytest.raises(TooDeep, match="nested too deeply"):
        decode(b"[" * levels + b"]" * levels)
