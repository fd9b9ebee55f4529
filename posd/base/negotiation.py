"""What a client prefers of an answer: the headers `Accept` and `Accept-Language` (RFC 9110, 12.5), read and bounded."""

from collections.abc import Iterable
from enum import StrEnum

#: Parts of such a header that are read; what comes behind them does not count.
MAX_PARTS = 32


class Language(StrEnum):
    """The languages of texts for a cashier."""

    EN = "en"
    ES = "es"


def weights(headers: Iterable[str]) -> dict[str, float]:
    """Return what a header names, in lower case and its order, each with its weight from 0 to 1 (the highest given).

    A header may come several times. A weight that is none counts as 1.
    """
    found: dict[str, float] = {}
    for part in ",".join(headers).split(",", MAX_PARTS)[:MAX_PARTS]:
        name, *options = (item.strip().lower() for item in part.split(";", MAX_PARTS))
        found[name] = max(_weight(options), found.get(name, 0.0))
    return found


def _weight(options: list[str]) -> float:
    for option in options:
        name, _, value = option.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 1.0
    return 1.0


def language(headers: Iterable[str], otherwise: Language) -> Language:
    """Return the language that the values of `Accept-Language` ask for: the one with the highest weight, of equal ones
    the first.

    A regional one (`es-EC`) asks for its language, `*` for `otherwise`, which counts too where none is asked for.
    """
    best, highest = otherwise, 0.0
    for name, weight in weights(headers).items():
        asked = otherwise if name == "*" else _LANGUAGES.get(name.partition("-")[0])
        if asked is not None and weight > highest:
            best, highest = asked, weight
    return best


_LANGUAGES = {str(item): item for item in Language}
