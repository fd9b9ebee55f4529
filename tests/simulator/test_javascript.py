"""JSON as JavaScript writes it, compared with Node where the machine has it."""

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from posd.simulator.javascript import number, parse, stringify
from tests.support.needs import needs
from tests.support.tables import every

ROWS = [
    ("10.00", "10"),
    ("1.20", "1.2"),
    ("1e2", "100"),
    ("-0", "0"),
    ("-0.0", "0"),
    ("0.05", "0.05"),
    ("0.000001", "0.000001"),
    ("0.0000001", "1e-7"),
    ("-1.5E-7", "-1.5e-7"),
    ("100000000000000000000", "100000000000000000000"),
    ("123456789012345680000", "123456789012345680000"),
    ("1000000000000000000000", "1e+21"),
    ("12345678901234567", "12345678901234568"),
    ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ("5e-324", "5e-324"),
    ("1e999", "null"),
    ('"\\u00e9\\ud83d\\ude00\\/ \\u007f\\u2028"', '"é😀/ \u007f\u2028"'),
    ('"\\u0001\\b\\f\\n\\r\\t\\"\\\\"', '"\\u0001\\b\\f\\n\\r\\t\\"\\\\"'),
    ('"\\uD800x\\udc00"', '"\\ud800x\\udc00"'),
    (' { "b" : [ 1 , true , null ] , "a" : { } } ', '{"b":[1,true,null],"a":{}}'),
    ('{"b":1,"10":2,"9":3,"a":4,"0":5}', '{"0":5,"9":3,"10":2,"b":1,"a":4}'),
    ('{"01":1,"4294967295":2,"4294967294":3,"-1":4,"1.5":5}', '{"4294967294":3,"01":1,"4294967295":2,"-1":4,"1.5":5}'),
    ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ('{"٣":1,"1":2}', '{"1":2,"٣":1}'),
]


@every(("text", "written"), ROWS)
def test_it_is_written_so(text: str, written: str) -> None:
    assert stringify(parse(text)) == written


@every("text", ["NaN", "[Infinity]", "{", "", "01", "[" * 100_000, "\ufeff{}", "'a'"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_again_as_it_was(value: float) -> None:
    assert float(number(value)) == value


NAMES = st.text(max_size=8) | st.integers(0, 2**33).map(str)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
NODE = """
const lines = require("fs").readFileSync(0, "utf8").split("\\n");
process.stdout.write(lines.map((line) => JSON.stringify(JSON.parse(JSON.parse(line)))).join("\\n"));
"""


def by_node(texts: list[str]) -> list[str]:
    asked = "\n".join(json.dumps(text) for text in texts)
    done = subprocess.run(["node", "-e", NODE], input=asked.encode(), capture_output=True, timeout=30, check=True)
    return done.stdout.decode().split("\n")


@needs("node")
def test_the_rows_are_what_node_writes() -> None:
    assert by_node([text for text, _ in ROWS]) == [written for _, written in ROWS]


@pytest.mark.slow
@needs("node")
@hypothesis_settings(max_examples=15, deadline=None)
@given(st.lists(VALUES, min_size=60, max_size=60))
def test_it_is_what_node_writes(values: list[Any]) -> None:
    texts = [json.dumps(value) for value in values]
    assert [stringify(parse(text)) for text in texts] == by_node(texts)
