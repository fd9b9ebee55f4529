"""Preferences of a client for a response: the headers `Accept` and `Accept-Language` (RFC 9110, 12.5), limited in
length.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

#: Maximum number of parts of such a header. posd ignores the other parts.
MAX_PARTS = 32


class Language(StrEnum):
    """Languages of the texts for a cashier."""

    EN = "en"
    ES = "es"


class Text(msgspec.Struct, frozen=True):
    """A text in each language. {amount} is the amount with a leading space, or empty if it is unknown."""

    en: str
    es: str

    def of(self, language: Language, amount: str = "") -> str:
        """Return the text in one language."""
        return (self.es if language is Language.ES else self.en).format(amount=amount)


def weights(headers: Iterable[str]) -> dict[str, float]:
    """Return the names in a header, in lower case and in order, each with its highest weight (0 to 1).

    A header may be repeated. An invalid weight counts as 1.
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
    """Return the language with the highest weight in `Accept-Language`. Of equal weights the first counts.

    A regional tag (`es-EC`) selects its language. `*` selects `otherwise`, which is also the default.
    """
    best, highest = otherwise, 0.0
    for name, weight in weights(headers).items():
        asked = otherwise if name == "*" else _LANGUAGES.get(name.partition("-")[0])
        if asked is not None and weight > highest:
            best, highest = asked, weight
    return best


_LANGUAGES = {str(item): item for item in Language}
