"""Text that becomes HTML: what comes from outside is escaped, once, here."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import escape

from posd.cli.report.facts import money


class Safe(str):
    """HTML that this page wrote itself."""

    __slots__ = ()


#: What a cell or a line can be.
Cell = str


#: Characters of a text that stands in one line.
SHORT = 14


def text(value: str) -> Safe:
    """Return a text as HTML; what is HTML already stays as it is. Characters that HTML has no form for are replaced."""
    if isinstance(value, Safe):
        return value
    if not value.isprintable():
        value = "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in value)
    return Safe(escape(value))


def join(parts: Iterable[str], between: str = "") -> Safe:
    """Put pieces together, each escaped unless it is HTML."""
    return Safe(text(between).join(text(part) for part in parts))


def tag(name: str, *content: str, **attributes: str) -> Safe:
    """Return an element. An attribute's underscores are hyphens; `class_` is `class`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"' for key, value in attributes.items()
    )
    return Safe(f"<{name}{given}>{join(content)}</{name}>")


def cell(value: str | None) -> Safe:
    """Write a text that comes from outside: a short one is never broken, a long one wherever it has to be."""
    if not value:
        return Safe("&ndash;")
    return tag("span", value, class_="s" if len(value) <= SHORT else "w")


def amount(value: Decimal | None) -> Safe:
    """Write an amount; thousands stand apart to the eye alone, so that it is found and copied as a plain number."""
    if value is None:
        return Safe("&ndash;")
    written = money(value)
    sign, digits = ("\N{MINUS SIGN}", written[1:]) if written.startswith("-") else ("", written)
    whole, point, places = digits.partition(".")
    head = len(whole) % 3
    groups = [whole[:head]] * bool(head) + [whole[place : place + 3] for place in range(head, len(whole), 3)]
    spaced = "".join(f'<i class="k">{group}</i>' for group in groups[:-1]) + groups[-1]
    return Safe(f"{sign}{spaced}{point}{places}")


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    numbers: Sequence[str] = (),
    foot: Sequence[Cell] = (),
    class_: str = "",
) -> Safe:
    """Return a table. `numbers` names the columns that are set flush right; `foot` is its last row, the total."""
    classes = [' class="n"' if column in numbers else "" for column in columns]
    head = "".join(f'<th scope="col"{kind}>{text(column)}</th>' for column, kind in zip(columns, classes, strict=True))
    body = "\n".join(f"<tr>{_cells(row, classes)}</tr>" for row in rows)
    end = f"<tfoot><tr>{_cells(foot, classes)}</tr></tfoot>" if foot else ""
    name = f' class="{class_}"' if class_ else ""
    return Safe(
        f"<table{name}><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>{end}</table>"
    )


def _cells(row: Sequence[Cell], classes: Sequence[str]) -> str:
    return "".join(f"<td{kind}>{text(cell)}</td>" for cell, kind in zip(row, classes, strict=True))
