"""JSON as JavaScript writes it. Tests use tables, properties, and a comparison with JavaScript itself."""

import json
import subprocess
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.canonical_json import NotCanonical, canonical, faults
from posd.base.json_types import Place, encode, pointer
from posd.simulator.authentication import parse_javascript, stringify_javascript
from tests.rig.needs import needs
from tests.rig.tables import every


@every(
    ("text", "expected"),
    [
        ('{ "b" : 10.00 , "a" : 1.20 }', '{"b":10,"a":1.2}'),
        ("[0, -0, 0.0, -0.00, 0e5]", "[0,0,0,0,0]"),
        ("[1e3, 12E-1, 100, 1.0e0]", "[1000,1.2,100,1]"),
        ("[1e20, 1e21, 1.5e21, -1e22]", "[100000000000000000000,1e+21,1.5e+21,-1e+22]"),
        ("[0.000001, 0.0000015, 1e-7, 1.5e-7]", "[0.000001,0.0000015,1e-7,1.5e-7]"),
        ("[9007199254740992, 123456789012.3456, 5e-324]", "[9007199254740992,123456789012.3456,5e-324]"),
        ("[999999999999.9999]", "[999999999999.9999]"),
        (r'["\u00e9\ud83d\ude00\/", "\u001f\b\u007f"]', '["é😀/","\\u001f\\b\x7f"]'),
        ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
        ('[null, true, false, {}, [], ""]', '[null,true,false,{},[],""]'),
        ('{"4294967295":1,"01":2,"-1":3}', '{"4294967295":1,"01":2,"-1":3}'),
    ],
    ids=str,
)
def test_values_have_the_form_of_javascript(text: str, expected: str) -> None:
    assert canonical(text.encode()) == expected.encode()
    assert canonical(expected.encode()) == expected.encode()
    assert stringify_javascript(parse_javascript(text)) == expected


@every(
    ("text", "place", "word"),
    [
        ('{"amount":{"iva":99999999999999.99999}}', ("amount", "iva"), "it would be 100000000000000 there"),
        ("[1, 9007199254740993]", (1,), "it would be 9007199254740992 there"),
        ("[1e400]", (0,), "it would be no number there"),
        ("[1e-400]", (0,), "it would be 0 there"),
        ("[1E999999999999999999999]", (0,), "it would be no number there"),
        ('{"metadata":{"7":1}}', ("metadata", "7"), "move this member to the front"),
        ('{"4294967294":1}', ("4294967294",), "move this member to the front"),
    ],
    ids=str,
)
def test_values_that_javascript_changes_are_found(text: str, place: Place, word: str) -> None:
    ((found, words),) = faults(text.encode())
    assert found == place
    assert word in words
    with pytest.raises(NotCanonical, match=f"^{pointer(place)} "):
        canonical(text.encode())


def test_invalid_json_is_an_error() -> None:
    for text in (b"", b"{", b"\xff", b"NaN", b'"\\ud800"'):
        with pytest.raises(ValueError, match=r"it (is|has)"):
            canonical(text)


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=0, max_value=10**12)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(TREES)
def test_an_object_without_faults_keeps_its_meaning_in_canonical_form(document: Any) -> None:
    text = encode(document)
    if faults(text):
        with pytest.raises(NotCanonical):
            canonical(text)
        return
    written = canonical(text)
    assert json.loads(written, parse_float=Decimal, parse_int=Decimal) == json.loads(
        text, parse_float=Decimal, parse_int=Decimal
    )
    assert canonical(written) == written


#: Program that reads a list from its input, and writes each item on a line.
JAVASCRIPT = "for (const v of JSON.parse(require('fs').readFileSync(0, 'utf8'))) console.log(JSON.stringify(v))"


@needs("node")
def test_the_text_equals_that_of_javascript() -> None:
    """The values are numbers of every size and texts of every kind."""
    rows = [
        f"{digits}e{power}" for power in range(-330, 310) for digits in ("1", "1.5", "9.007199254740993", "1234.56")
    ]
    rows += [f"{whole}.{part:04}" for whole in (0, 7, 10**6, 10**11, 10**12 - 1) for part in range(0, 10000, 37)]
    rows += [json.dumps(text) for text in (*map(chr, range(0x21)), "é\u2028\u2029😀", '"\\/', "\x7f\x80\ufffd")]
    theirs = subprocess.run(
        ["node", "-e", JAVASCRIPT], input=f"[{','.join(rows)}]".encode(), capture_output=True, check=True
    )
    lines = theirs.stdout.decode().removesuffix("\n").split("\n")
    exact = {row: line for row, line in zip(rows, lines, strict=True) if not faults(row.encode())}
    assert len(exact) > len(rows) // 2
    assert {row: canonical(row.encode()).decode() for row in exact} == exact
