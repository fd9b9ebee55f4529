"""JSON as JavaScript writes it."""

import pytest

from posd.simulator.authentication import parse_javascript, stringify_javascript
from tests.support.tables import every

ROWS = [
    ("10.00", "10"),
    ("1.20", "1.2"),
    ("-0", "0"),
    ("0.000001", "0.000001"),
    ("0.0000001", "1e-7"),
    ("100000000000000000000", "100000000000000000000"),
    ("1000000000000000000000", "1e+21"),
    ("12345678901234567", "12345678901234568"),
    ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ("1e999", "null"),
    ('"\\u00e9\\ud83d\\ude00\\/ \\u007f\\u2028"', '"é😀/ \u007f\u2028"'),
    ('"\\u0001\\b\\f\\n\\r\\t\\"\\\\"', '"\\u0001\\b\\f\\n\\r\\t\\"\\\\"'),
    ('"\\uD800x\\udc00"', '"\\ud800x\\udc00"'),
    (' { "b" : [ 1 , true , null ] , "a" : { } } ', '{"b":[1,true,null],"a":{}}'),
    ('{"01":1,"4294967295":2,"4294967294":3,"-1":4,"1.5":5}', '{"4294967294":3,"01":1,"4294967295":2,"-1":4,"1.5":5}'),
    ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ('{"٣":1,"1":2}', '{"1":2,"٣":1}'),
]


@every(("text", "written"), ROWS)
def test_it_is_written_so(text: str, written: str) -> None:
    assert stringify_javascript(parse_javascript(text)) == written


@every("text", ["NaN", "[Infinity]", "{", "", "01", "[" * 100_000, "\ufeff{}", "'a'"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_javascript(text)
