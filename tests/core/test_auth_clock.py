"""The difference of the clocks that a refused signed call shows."""

from datetime import UTC, datetime

from posd.terminals.attempt import clock_ahead, clock_remark, in_words
from tests.rig.tables import every

NOW = datetime(2026, 11, 26, 10, 0, 0, 600_000, tzinfo=UTC)


@every(
    ("date", "seconds"),
    [
        ("Thu, 26 Nov 2026 10:00:00 GMT", 1),
        ("Thu, 26 Nov 2026 10:06:01 GMT", -360),
        ("Thu, 26 Nov 2026 09:54:00 +0000", 361),
        ("Thu, 26 Nov 2026 04:54:00 -0500", 361),
        ("Thu, 26 Nov 2026 09:54:00 -0000", 361),
        ("", None),
        (None, None),
        ("yesterday", None),
        ("Thu, 99 Nov 2026 10:00:00 GMT", None),
        ("Mon, 01 Jan 99999999999999 00:00:00 GMT", None),
    ],
    ids=str,
)
def test_the_difference_of_the_clocks_is_computed(date: str | None, seconds: int | None) -> None:
    assert clock_ahead(NOW, date) == seconds


@every(
    ("status", "seconds", "words"),
    [
        (
            401,
            360,
            "the clock of this machine is 6 min ahead of that of the terminal, which accepts 5 min: that is the",
        ),
        (403, -361, "the clock of this machine is 6 min 1 s behind that of the terminal"),
        (400, 301, "the clock of this machine is 5 min 1 s ahead of"),  # the text names no cause for a cloud service
        (
            401,
            300,
            "it refused the authentication; the clocks differ by 5 min, which is allowed. Check auth, business_",
        ),
        (401, -2, "it refused the authentication; the clocks differ by 2 s, which is allowed"),
        (403, None, "it refused the authentication; its reply does not give its time. Check auth"),
        (409, 300, ""),
        (500, None, ""),
    ],
    ids=str,
)
def test_a_refused_call_names_the_clock_only_if_it_differs(status: int, seconds: int | None, words: str) -> None:
    said = clock_remark(status, seconds, 300)
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_one_second_of_difference_is_too_much_if_the_terminal_accepts_none() -> None:
    assert "1 s ahead of" in clock_remark(401, 1, 0)


def test_times_are_written_as_text() -> None:
    assert [in_words(seconds) for seconds in (0, 59, 60, 61, 3600)] == ["0 s", "59 s", "1 min", "1 min 1 s", "60 min"]
