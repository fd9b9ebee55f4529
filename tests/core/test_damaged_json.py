"""Partly damaged JSON. posd reads the undamaged part if the structure is complete."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import (
    LEVELS,
    MAX_DAMAGED_BYTES,
    MAX_DEPTH,
    BrokenStructure,
    check,
    mend,
    named,
    presentable,
    readable,
)
from tests.rig.tables import every

CUT = "�"


@pytest.mark.parametrize(
    ("damaged", "read", "places"),
    [
        (b'{"a": "x\xffy", "b": 1}', {"a": f"x{CUT}y", "b": 1}, {("a",)}),
        (b'{"a": "\xed\xa0\xbd"}', {"a": CUT * 3}, {("a",)}),
        (b'{"a": "\xc3"}', {"a": CUT}, {("a",)}),
        (b'{"a": "\\ud83d", "b": "\\ud83d\\ude00"}', {"a": CUT, "b": "😀"}, {("a",)}),
        (b'{"a": "\\ude00\\ud83d"}', {"a": CUT * 2}, {("a",)}),
        (b'{"a": "1\t2\x003", "b": "\\t\\u0000"}', {"a": f"1{CUT}2{CUT}3", "b": "\t\0"}, {("a",)}),
        (b'{"a": "\\x41\\u12"}', {"a": f"{CUT}41{CUT}12"}, {("a",)}),
        (b'{"a": "\\\xff"}', {"a": CUT}, {("a",)}),
        (b'{"a": NaN, "b": [1, -Infinity]}', {"a": None, "b": [1, None]}, {("a",), ("b", 1)}),
        (b'{"a": True, "b": undefined}', {"a": None, "b": None}, {("a",), ("b",)}),
        (b'{"a": ' + b"9" * 4301 + b"}", {"a": None}, {("a",)}),
        (b'{"a": ' + b"9" * 4300 + b', "b": }', {"a": 10**4300 - 1, "b": None}, {("b",)}),
        (b"[1,]", [1, None], {(1,)}),
        (b'{"a": "\xff"}'.ljust(MAX_DAMAGED_BYTES), {"a": CUT}, {("a",)}),
        (b'{"a": 01, "b": 1.2.3, "c": 1 2, "d": -, "e": 0x1}', dict.fromkeys("abcde"), {(name,) for name in "abcde"}),
        (b'{"a": , "b": }', {"a": None, "b": None}, {("a",), ("b",)}),
        (b'{"a\xff": {"b": 1}}', {f"a{CUT}": {"b": 1}}, {(f"a{CUT}",)}),
        (b'{"a": {"b": ["\xff"]}}', {"a": {"b": [CUT]}}, {("a", "b", 0)}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}, {()}),
        (b'{"a": 1}x', {"a": 1}, {()}),
        (b'{"a": 1}\0\0', {"a": 1}, {()}),
        (b'{"a": 1}}', {"a": 1}, {()}),
        (b' {"a" : [ ] , "b":{ }} \n', {"a": [], "b": {}}, set()),
        (b'"\xff"', CUT, {()}),
    ],
)  # fmt: skip
def test_members_around_the_damage_are_read(damaged: bytes, read: Any, places: set[tuple[Any, ...]]) -> None:
    mended = mend(damaged)
    assert json.loads(mended.body) == read
    assert mended.damaged == places
    assert check(mended.body)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"x",
        b"<html>",
        b"{",
        b'{"a": 1',
        b'{"a": 1,',
        b'{"a" 1}',
        b'{"a": "x" "b": 2}',
        b'{"a": "x",}',
        b'{"a": 11,20}',
        b"{a: 1}",
        b'{"a": [1}',
        b'{"a": 1}{"b": 2}',
        b'{"a": "x\\"}',
        b'{"a": "x"": 1}',
        b'{"a": ' + b"[" * 200 + b"}",
        b'{"a": ' + b"[" * LEVELS + b"}" + b"]" * (LEVELS - 1) + b"}",
        b'{"a": ' + b"[" * 200 + b'"',
        b'{"a": ' + b"[" * 200,
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\xff"}' + b" " * MAX_DAMAGED_BYTES,
    ],
)
def test_incomplete_json_is_not_read(broken: bytes) -> None:
    with pytest.raises(BrokenStructure):
        mend(broken)


@every(
    ("broken", "reason"),
    [
        (b"{a: 1}", "broken at character 1"),
        (b'{"a": 1', "breaks off before its end"),
        (b'{"a": "x', "breaks off inside a text"),
        (b'{"a": ' + b"[" * 200, "inside a value that is nested too deeply"),
    ],
)
def test_incomplete_json_has_its_reason(broken: bytes, reason: str) -> None:
    with pytest.raises(BrokenStructure, match=reason):
        mend(broken)


@every(("levels", "damaged"), [(LEVELS, {("b",)}), (LEVELS + 1, {("b",), ("a", *[0] * (LEVELS - 1))})])
def test_damaged_json_is_read_up_to_a_limited_depth(levels: int, damaged: set[tuple[Any, ...]]) -> None:
    text = b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b', "b": }'
    assert mend(text).damaged == damaged


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 20_000])
def test_members_nested_too_deeply_are_skipped(levels: int) -> None:
    nested = b'{"a": ' + b"[" * (levels - 1) + b'"]"' + b"]" * (levels - 1) + b', "b": 7}'
    mended = readable(nested)
    assert json.loads(mended.body)["b"] == 7
    assert bool(mended.damaged) is (levels > MAX_DEPTH)


def test_valid_json_is_not_changed() -> None:
    text = b' {"a": 1.10,\t"a": "\\u00e9"} '
    assert readable(text) == readable(text)
    assert (readable(text).body, readable(text).damaged, presentable(text)) == (text, frozenset(), text)


def test_json_with_two_faults_gives_both_reasons_and_is_shown_as_an_empty_object() -> None:
    with pytest.raises(ValueError, match="not UTF-8; it breaks off"):
        readable(b'{"a": "\xff"')
    assert presentable(b'{"a": "\xff"') == b"{}"
    assert presentable(b'{"a": "\xff"}') == '{"a":"�"}'.encode()


def test_damaged_places_are_named_on_one_short_ascii_line() -> None:
    assert named([("a", "b\n=\x1b[1mé", 3), ()]) == ("a.b\\n=\\x1b[1m\\xe9.3", "text around the document")
    assert named([(name,) for name in "edcba"]) == ("a", "b", "c", "d", "e")
    assert named([(name,) for name in "fedcba"]) == ("a", "b", "c", "d", "e", "1 more")
    (long,) = named([("x" * 1000,) * 100])
    assert len(long) < 250


#: JSON with every kind of structure.
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(DOCUMENTS)
def test_undamaged_json_is_read_unchanged(document: Any) -> None:
    mended = mend(json.dumps(document).encode())
    assert (json.loads(mended.body), mended.damaged) == (document, frozenset())


@given(DOCUMENTS, st.data())
def test_any_bytes_in_a_text_are_read_as_json_or_refused(document: Any, data: st.DataObject) -> None:
    whole = bytearray(json.dumps({"a": document, "b": 1}).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        mended = mend(bytes(whole))
    except BrokenStructure as error:
        assert str(error)  # noqa: PT017 - success and this error are both correct
    else:
        json.loads(check(mended.body))
