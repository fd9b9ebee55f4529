"""The table of `posd explain`: every code that posd can show, and what it means.

A test holds it against the code: each code that there is has a row, and each row is of a code that there is. To add a
code, add its row to en.toml and es.toml.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from posd.base.negotiation import Language
from posd.cli.explain import texts
from posd.cli.explain.texts import Words


class CodeKind(NamedTuple):
    """The codes of one kind stand for one thing: its name, and where they are seen."""

    name: Words
    where: Words


KINDS: Mapping[str, CodeKind] = {
    kind: CodeKind(texts.words("kind", kind, "name"), texts.words("kind", kind, "where"))
    for kind in texts.read(Language.ES)["kind"]
}

#: How many codes are named to one who has typed an unknown one.
MOST_NEAR = 5


class CodeEntry(msgspec.Struct, frozen=True):
    """What is said of one code; `language` is that of its texts. See `texts.CodeText`."""

    kind: str
    code: str
    means: str
    comes: str
    money: str
    do: str
    commands: tuple[str, ...]
    see: str
    language: Language = Language.EN

    @property
    def title(self) -> str:
        """The code, and what it is a code of."""
        return f"{self.code} ({self.of})"

    @property
    def of(self) -> str:
        """What it is a code of."""
        return said(KINDS[self.kind].name, self.language)


class SimilarCodes(NamedTuple):
    """The codes that one may have meant."""

    codes: tuple[str, ...]

    def __str__(self) -> str:
        return f"; did you mean {' or '.join(self.codes)}?" if self.codes else ""


def said(words: Words, language: Language) -> str:
    """Return a text in one language."""
    english, spanish = words
    return spanish if language is Language.ES else english


def entries(language: Language = Language.EN) -> Iterator[CodeEntry]:
    """Yield every entry, in the order of the kinds."""
    for name in KINDS:
        for code, row in texts.rows(name):
            means, comes, money, do = (said(words, language) for words in row[:4])
            yield CodeEntry(name, code, means, comes, money, do, row.commands, row.see, language)


def find(code: str, language: Language = Language.EN) -> tuple[CodeEntry, ...]:
    """Return what there is of a code, in any case of its letters: one that several kinds have is several entries.

    For a code of a terminal that has no entry it is that of its family.
    """
    typed = code.lower()
    family = typed[: typed.rfind("-") + 1]
    wanted = (typed, family, family.removesuffix("-"))
    every = [entry for entry in entries(language) if entry.code.lower() in wanted]
    found = (tuple(entry for entry in every if entry.code.lower() == name) for name in wanted)
    return next(filter(None, found), ())


def near(code: str) -> SimilarCodes:
    """Return the codes that one who typed an unknown one may have meant."""
    known = {entry.code.lower(): entry.code for entry in entries()}
    typed = code.lower().replace("-", "_").replace(" ", "_")
    found = difflib.get_close_matches(typed, known, n=MOST_NEAR, cutoff=0.6)
    found += [name for name in known if len(typed) > 2 and typed in name and name not in found]
    return SimilarCodes(tuple(known[name] for name in found[:MOST_NEAR]))
