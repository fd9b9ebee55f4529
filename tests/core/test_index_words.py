"""Search keys of JSON members. Two keys are equal exactly if name and value are equal. No key is long."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from posd.base.canonical_json import WORD_LENGTH, asked_words, index_words
from tests.rig.tables import every

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
NAMES = TEXT | st.sampled_from(["k", 'a"b', "a\\b", "a\0b", "", "a.b", "a=b"])
NUMBERS = st.integers() | st.decimals(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    TEXT | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def written(value: Any) -> str:
    """Return JSON text. A Decimal becomes a number."""
    match value:
        case bool() | None | str() | int():
            return json.dumps(value)
        case list():
            return f"[{', '.join(map(written, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(name)}: {written(item)}' for name, item in value.items())}}}"
        case _:
            return str(value)


def word(name: str, value: Any) -> str:
    (found,) = index_words(f"{{{json.dumps(name)}: {written(value)}}}".encode())
    return found


@every(
    ("stored", "text"),
    [
        ('"ticket 1042"', "ticket 1042"),
        ('"n\\u00famero"', "número"),
        ('"a\\u0000b"', "a\0b"),
        ('""', ""),
        ('"7"', "7"),
        ("7", "7"),
        ("70e-1", "7"),
        ("0.7E+1", "7.000"),
        ("-0.0", "0"),
        ("1e999999", "10e999998"),
        ("123456789012345678901234567890.10", "123456789012345678901234567890.1"),
        ('"true"', "true"),
        ("[1, 2.0]", "[1,2]"),
        ('{"b": 1, "a": [null]}', '{"a":[null],"b":1.0}'),
        ('"[1]"', "[1]"),
    ],
)
def test_a_member_is_found_by_an_equal_member(stored: str, text: str) -> None:
    assert set(index_words(f'{{"k": {stored}}}'.encode())) & set(asked_words("k", text))


@every(
    ("stored", "text"),
    [
        ('"7"', "7.0"),
        ('"7.0"', "7"),
        ("7", '"7"'),
        ("7", "07"),
        ("1e999999", "1e999998"),
        ('"b"', '"b"'),
        ("true", "1"),
        ("0", "1"),
        ("[1, 2]", "[2,1]"),
        ('{"a": 1}', '{"a":"1"}'),
        ('"e\\u0301"', "\u00e9"),
    ],
)
def test_a_member_is_not_found_by_a_different_member(stored: str, text: str) -> None:
    assert not set(index_words(f'{{"k": {stored}}}'.encode())) & set(asked_words("k", text))


@every("text", [b"", b"no JSON", b"\xff", b'{"a": 1', b"[1]", b"7", b'{"a": "\\ud800"}', b'{"a": NaN}'])
def test_a_value_that_is_not_an_object_has_no_search_keys(text: bytes) -> None:
    assert index_words(text) == []


def test_the_last_value_of_a_repeated_name_counts() -> None:
    assert index_words(b'{"a": 1, "a": 2}') == [word("a", 2)]


@given(NAMES, VALUES)
def test_a_member_is_found_by_its_json_and_a_text_also_without_quotes(name: str, value: Any) -> None:
    assert word(name, value) in asked_words(name, value if isinstance(value, str) else written(value))


@given(NAMES, VALUES, NAMES, VALUES)
def test_different_members_have_different_search_keys(name: str, value: Any, other: str, another: Any) -> None:
    assert (word(name, value) == word(other, another)) == ((name, plain(value)) == (other, plain(another)))


def plain(value: Any) -> Any:
    """Return a value that equals another value exactly if both are the same JSON. For example, true is not 1."""
    match value:
        case bool():
            return str, value
        case list():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            return value


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=WORD_LENGTH, max_size=2 * WORD_LENGTH),
    st.integers(0, WORD_LENGTH - 1),
)
def test_a_long_search_key_is_cut_and_still_unique(text: str, at: int) -> None:
    other = text[:at] + chr(ord(text[at]) ^ 1 if ord(text[at]) not in range(0xD7FF, 0xE001) else 65) + text[at + 1 :]
    assert len(word("k", text)) == WORD_LENGTH
    assert (word("k", text) == word("k", other)) == (text == other)
    assert word("k", text) != word("k", word("k", text))


def test_a_short_search_key_is_the_json_of_name_and_value() -> None:
    longest = "x" * (WORD_LENGTH - len('["k",""]'))
    assert [word("k", 7.0), word("k", longest)] == ['["k",7]', f'["k","{longest}"]']


def test_each_name_of_an_object_has_at_most_one_search_key() -> None:
    many = {f"{number}": 1 for number in range(1500)}
    assert len(index_words(json.dumps(many).encode())) == 1500
    deep = b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}"
    assert [len(found) for found in index_words(deep)] == [WORD_LENGTH]
