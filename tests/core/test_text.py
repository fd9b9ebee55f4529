"""Untrusted texts are shown as one printable line. The values of a document stay unchanged."""

import json
import sys
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from posd.base.problems import Problem
from posd.base.text import composed, did_you_mean, escaped, shown
from tests.rig.strange import STRANGE, assert_lines
from tests.rig.tables import every

#: All characters, including lone surrogates.
TEXT = st.text(st.characters())


@every("text", STRANGE.values(), STRANGE)
def test_a_strange_text_is_shown_in_one_line(text: str) -> None:
    assert "\n" not in shown(text)
    assert_lines(shown(text))


@every(
    ("text", "written"),
    [
        ("Caf\u00e9 a\u00f1o \u20ac 字", "Caf\u00e9 a\u00f1o \u20ac 字"),
        ("1\u00a0000\u202f000\u3000", "1 000 000 "),
        ("a\tb\r\nc", r"a\tb\r\nc"),
        ('"Caf\u00e9"\n', '"Caf\u00e9"\\n'),
        ("\x1b[2J\x9b\x7f", r"\u001b[2J\u009b\u007f"),
        ("\u2028\u202e\u200b", r"\u2028\u202e\u200b"),
        ("\ud800\U000e0041", r"\ud800\udb40\udc41"),
    ],
)
def test_unprintable_characters_are_shown_as_escapes(text: str, written: str) -> None:
    assert shown(text) == written


def test_a_letter_is_equal_however_the_keyboard_composes_it() -> None:
    assert [composed("e\u0301"), composed("\u00e9"), composed("e")] == ["\u00e9", "\u00e9", "e"]


@every(("name", "asked"), [("IVA", " (did you mean iva_zero?)"), ("tip", "")])
def test_a_similar_name_is_proposed(name: str, asked: str) -> None:
    assert did_you_mean(name, ["document", "iva_zero"]) == asked


def test_each_space_of_unicode_is_shown_as_a_space() -> None:
    spaces = {char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) == "Zs"}
    assert {char for char in map(chr, range(sys.maxunicode + 1)) if shown(char) == " "} == spaces


@given(TEXT)
def test_a_shown_text_is_printable_and_showing_it_again_changes_nothing(text: str) -> None:
    assert shown(text).isprintable()
    assert shown(shown(text)) == shown(text)


@given(st.recursive(st.none() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=10))
def test_an_escaped_document_means_the_same(document: Any) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=1)
    assert json.loads(escaped(text)) == document
    assert all(line.isprintable() for line in escaped(text).split("\n"))
    assert len(escaped(text).split("\n")) == len(text.split("\n"))


@every("text", STRANGE.values(), STRANGE)
def test_the_detail_of_a_problem_is_one_line(text: str) -> None:
    problem = Problem("not_found", f"there is no {text}")
    assert_lines(problem.detail)
    assert str(problem) == problem.detail == problem.document()["detail"]
