"""What a signed call shows about this machine's clock: pure.

The schemes sign the time, and a terminal refuses a time too far from its own clock. The `Date` of its reply is that
clock (RFC 9110, 6.6.1), in whole seconds.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: HTTP statuses of a refused authentication.
REFUSED = frozenset({401, 403})


def ahead(now: datetime, date: str | None) -> int | None:
    """Return the seconds that this clock is ahead of a `Date` (negative: behind), or None if it is invalid."""
    try:
        theirs = parsedate_to_datetime(date or "")
        return round((now - (theirs if theirs.tzinfo else theirs.replace(tzinfo=UTC))).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def remark(status: int, seconds: int | None, window: int) -> str:
    """Return a sentence about the clocks after a refused call; empty if they are not the cause.

    `seconds`: from `ahead`. `window`: the difference that the terminal accepts, in seconds.
    """
    if seconds is not None and abs(seconds) > window:
        direction = "ahead of" if seconds > 0 else "behind"
        return (
            f"the clock of this machine is {in_words(abs(seconds))} {direction} that of the terminal, which accepts "
            f"{in_words(window)}: that is the likely cause. Set the clock that is wrong, then try again"
        )
    if status not in REFUSED:
        return ""
    compared = (
        "its reply does not say what time it is there"
        if seconds is None
        else f"the clocks differ by {in_words(abs(seconds))}, which it accepts"
    )
    return (
        f"it refused the authentication; {compared}. Check auth, business_code and [hash_encrypt] in the configuration "
        "(docs/guides/real-terminals.md)"
    )


def in_words(seconds: int) -> str:
    """Return a time in minutes and seconds as text."""
    minutes, rest = divmod(seconds, 60)
    parts = [f"{minutes} min"] if minutes else []
    return " ".join(parts if minutes and not rest else [*parts, f"{rest} s"])
