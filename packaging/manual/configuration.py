"""posd.toml(5), the page of the configuration file, made from the comments of config.example.toml."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from manual import roff

#: The file with every key and a comment on it.
EXAMPLE = Path(__file__).parents[2] / "config.example.toml"

#: Rows of the section FILES.
FILES = (
    ("/etc/posd/config.toml", "The configuration file, if --config names no other."),
    ("/etc/posd/config.d/*.toml", "Further files. posd applies them after it, in the order of their names."),
)
SECTION = re.compile(r"\[\[?(?P<name>[\w.-]+)\]\]?")
KEY = re.compile(r"(?P<key>\w+ = .+)")


def man_page(example: str) -> str:
    """Write the page, for section 5, from the comments above the keys."""
    lines = [*roff.heading("posd.toml", 5), ".SH NAME", r"posd.toml \- the configuration file of posd"]
    lines += [".SH SYNOPSIS", ".B /etc/posd/config.toml", ".SH DESCRIPTION", *_body(example.splitlines())]
    lines += [".SH FILES", *roff.definitions(FILES)]
    lines += roff.see_also(("posd(1)", "posd-config(1)", "posd-run(1)", "posd-doctor(1)"))
    return "\n".join(lines) + "\n"


def _body(lines: list[str]) -> Iterator[str]:
    comment: list[str] = []
    begins = True  # only comments since the head of the file or of the section
    for line in lines:
        if line.startswith("#"):
            comment.append(line[1:])
        elif match := SECTION.fullmatch(line.strip()):
            title = line.strip()
            yield f".SH {roff.escaped(title)}" if "." not in match["name"] else f".SS {roff.escaped(title)}"
            yield from _comment(comment)
            comment, begins = [], True
        elif KEY.fullmatch(line.strip()):
            if line.startswith("method = "):  # a comment above the first key of a row is about the row
                yield from _comment(comment)
                comment = []
            if begins and "" in comment:  # a comment above the last empty line is about the section
                last = len(comment) - comment[::-1].index("")
                yield from _comment(comment[: last - 1])
                comment = comment[last:]
            yield from (".TP", f"\\fB{roff.escaped(line.strip())}\\fR", *_within(comment))
            comment, begins = [], False
        elif comment and begins and not line.strip():
            # Comments of the head of the file. A comment below the keys of a section belongs to the next section.
            yield from _comment(comment)
            comment, begins = [], False
    yield from _comment(comment)


def _comment(lines: list[str]) -> Iterator[str]:
    """Write a comment. A line with no space after # is a commented-out key. Lines with two or more stay unchanged."""
    for indent, group in groupby(lines, lambda line: min(len(line) - len(line.lstrip()), 2) if line else None):
        words = [line.strip() for line in group]
        if indent == 2:
            yield from roff.verbatim(words)
        elif indent == 1:
            yield from roff.paragraphs((" ".join(words),))
        elif indent == 0:
            yield from (".PP", *(part for word in words for part in (".br", roff.escaped(word))))


def _within(lines: list[str]) -> Iterator[str]:
    """Write the comment of a key, with all paragraphs below the key."""
    first = True
    for line in _comment(lines):
        if first and line == ".PP":
            continue
        yield ".IP" if line == ".PP" else line
        first = False
    if first:
        yield r"\&"
