"""Pages as man pages: roff with the man macros, for 80 columns of plain text."""

import re
from collections.abc import Iterable, Iterator, Sequence

from manual.notes import ENVIRONMENT, FILES
from manual.pages import VERBATIM, Page
from posd import __version__
from posd.cli.app.lazy import groups

#: Characters with a meaning in roff -> their escapes. Text copied from a page can be typed unchanged.
ESCAPES = {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}

#: Maximum length of a command in one line, so that it fits into 80 columns with its indent and a backslash.
MOST_CHARACTERS = 64

#: Text that a user types unchanged, shown in bold: options, `in backticks`, names of pages.
TYPED = re.compile(r"`(?P<code>[^`]+)`|(?P<option>(?<![\w-])--[a-z][a-z0-9-]*)|(?P<page>posd[a-z.-]*)(?P<of>\([157]\))")


def man_page(page: Page) -> str:
    """Write the page of a command, for section 1."""
    lines = [*heading(page.name, 1), ".SH NAME", f"{escaped(page.name)} \\- {escaped(_lower(page.summary))}"]
    lines += [".SH SYNOPSIS", *_synopsis(page), ".SH DESCRIPTION"]
    lines += paragraphs((f"{page.summary}.", *page.description))
    if page.commands:
        lines.append(".SH COMMANDS")
        for title, commands in _grouped(page):
            lines += [f".SS {escaped(title)}"] * bool(title)
            lines += definitions((f"{page.command} {name}", f"{summary}.") for name, summary in commands)
    lines.append(".SH OPTIONS")
    lines += definitions((option.typed, f"{option.help} {_extra(option.extra)}".strip()) for option in page.options)
    lines.append(".SH EXIT STATUS")
    lines += definitions((str(code), words) for code, words in page.exits)
    if len(page.path) == 1:
        lines += [".SH ENVIRONMENT", *definitions(ENVIRONMENT.items()), ".SH FILES", *definitions(FILES.items())]
    lines.append(".SH EXAMPLES")
    for example in page.examples:
        lines += [*paragraphs((example.does,)), *verbatim(folded(example.line))]
    lines += see_also(page.see_also)
    return "\n".join(lines) + "\n"


def _grouped(page: Page) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    """Yield the groups of a page's commands, each with its title. Subcommands form one group without a title."""
    if len(page.path) > 1:
        yield "", page.commands
        return
    for title, names in groups().items():
        yield title, [command for command in page.commands if command[0] in names]


def heading(name: str, section: int) -> list[str]:
    """Return the title. The page has no date, so that the same commands make the same page."""
    return [
        r".\" Made by PYTHONPATH=packaging python -m manual: do not edit.",
        f'.TH {escaped(name.upper())} {section} "" "posd {escaped(__version__)}" "posd manual"',
        ".nh",
        ".ad l",
    ]


def _synopsis(page: Page) -> list[str]:
    words = page.synopsis.removeprefix(page.command).strip()
    return [f".B {escaped(page.command)}", escaped(words)]


def paragraphs(texts: Sequence[str]) -> Iterator[str]:
    """Write paragraphs. A paragraph that begins with click's mark keeps its lines."""
    for text in texts:
        if text.startswith(VERBATIM):
            yield from verbatim([line for line in text.split("\n")[1:] if line.strip()])
        else:
            yield ".PP"
            yield told(text)


def definitions(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Write terms and their definitions."""
    for term, words in rows:
        yield ".TP"
        yield f"\\fB{escaped(term)}\\fR"
        yield told(words)


def verbatim(lines: Sequence[str]) -> Iterator[str]:
    """Write indented lines, unchanged."""
    yield from (".PP", ".RS 4", ".nf", *(_safe(escaped(line)) for line in lines), ".fi", ".RE")


def folded(line: str) -> list[str]:
    """Break a long command before its options, so that it can still be copied and typed."""
    lines = [""]
    for part in re.split(" (?=--|>)", line):
        if lines[-1] and len(lines[-1]) + len(part) > MOST_CHARACTERS:
            lines[-1] += " \\"
            lines.append("    " + part)
        else:
            lines[-1] = f"{lines[-1]} {part}".strip() if len(lines) == 1 else f"{lines[-1]} {part}"
    return lines


def see_also(names: Sequence[str]) -> list[str]:
    """Write the names of related pages, as in posd-show(1)."""
    told_names = [f"\\fB{escaped(name[:-3])}\\fR{name[-3:]}" for name in names]
    return [".SH SEE ALSO", ",\n".join(told_names)]


def told(text: str) -> str:
    """Write running text, with text to type in bold."""
    parts, position = [], 0
    for match in TYPED.finditer(text):
        parts.append(escaped(text[position : match.start()]))
        word = match["code"] or match["option"] or match["page"]
        parts.append(f"\\fB{escaped(word)}\\fR{match['of'] or ''}")
        position = match.end()
    parts.append(escaped(text[position:]))
    return _safe("".join(parts))


def escaped(text: str) -> str:
    """Escape text for roff, so that it is shown unchanged."""
    plain = "".join(ESCAPES.get(character, character) for character in text)
    return "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in plain)


def _safe(line: str) -> str:
    """Return a line that roff shows unchanged. Without the prefix, a leading dot would begin a request."""
    return f"\\&{line}" if line.startswith(".") else line


def _lower(summary: str) -> str:
    return summary[:1].lower() + summary[1:]


def _extra(extra: str) -> str:
    return f"[{extra}]" if extra else ""
