"""The language that a client requests, for any `Accept-Language`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.text import MAX_PARTS, Language, accepted_weights, preferred_language
from tests.rig.tables import every

EN, ES = Language


@every(
    ("header", "asked"),
    [
        # (Accept-Language, language). None stands for the language of the configuration.
        (None, None),
        ("es", ES),
        ("ES-ec", ES),
        ("es-419, es;q=0.9", ES),
        ("en-US,en;q=0.9,es;q=0.8", EN),
        ("en;q=0.5,es;q=0.50", EN),  # for equal weights, the first language counts
        ("fr, es;q=0.1", ES),
        ("*", None),
        ("es;q=0.5, *;q=0.8", None),
        ("*;q=0.5, es", ES),
        ("es;q=0", None),
        ("es;level=0;q=0.9, en;q=0.5", ES),
        ("es; Q=0.9 , en ;q=0.2", ES),
        ("e", None),
        ("es;q=x;q=0", ES),
        ("es;q=nan, en;q=0.1", EN),
        ("en, es;q=1e9", EN),
        (",,;;,=,es;;;", ES),
        ("fr," * MAX_PARTS + "es", None),
        ("fr," * (MAX_PARTS - 1) + "es", ES),
        ("es" + ";q=0.5" * 5000, ES),
    ],
)
@every("otherwise", [EN, ES])
def test_the_requested_language_is_chosen(header: str | None, asked: Language | None, otherwise: Language) -> None:
    assert preferred_language([] if header is None else [header], otherwise) is (asked or otherwise)


def test_a_repeated_header_counts_as_one_header() -> None:
    assert accepted_weights(["es;q=0.2", "en;q=0.1, ES;q=0.3"]) == {"es": 0.3, "en": 0.1}


@given(st.lists(st.text(alphabet="esn,;q=.0123456789*-\t \x80\xff"), max_size=4), st.sampled_from(Language))
def test_any_header_gives_a_language(headers: list[str], otherwise: Language) -> None:
    assert preferred_language(headers, otherwise) in Language
    assert all(0 <= weight <= 1 for weight in accepted_weights(headers).values())
    assert len(accepted_weights(headers)) <= MAX_PARTS


@pytest.mark.parametrize("kind", Language)
def test_each_language_can_be_requested(kind: Language) -> None:
    assert preferred_language([f"{kind}-XX;q=0.001"], next(other for other in Language if other is not kind)) is kind
