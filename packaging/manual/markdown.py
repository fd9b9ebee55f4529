"""The pages as one Markdown file: docs/reference/commands.md of the site."""

from collections.abc import Iterator, Sequence

from manual.notes import ENVIRONMENT, FILES
from manual.pages import VERBATIM, Page
from posd.cli.app.lazy import groups

HEAD = """# Every command

The man pages say the same: `man posd`, `man posd-charge`, …. `man posd.toml` and `config.example.toml` describe the
configuration. [operations.md](../guides/operations.md) says what to do when something is wrong.
"""


def markdown(pages: Sequence[Page]) -> str:
    """Write all pages, after a table of contents."""
    lines = [HEAD, "| command | does |", "| --- | --- |", *map(_row, pages[:1])]
    for title, commands in groups().items():
        lines.append(f"| **{title}** | |")
        lines += [_row(page) for page in pages[1:] if page.path[1] in commands]
    for page in pages:
        lines += ["", *_page(page)]
    return "\n".join(lines) + "\n"


def _row(page: Page) -> str:
    return f"| [`{page.command}`](#{_anchor(page)}) | {_cell(page.summary)} |"


def _page(page: Page) -> Iterator[str]:
    yield from (f"## {page.command}", "", "```", page.synopsis, "```", "", f"{page.summary}.")
    for text in page.description:
        yield ""
        yield f"```\n{text.removeprefix(VERBATIM).strip()}\n```" if text.startswith(VERBATIM) else text
    yield from ("", "| option | does |", "| --- | --- |")
    for option in page.options:
        extra = f" [{option.extra}]" if option.extra else ""
        yield f"| `{_cell(option.typed)}` | {_cell(option.help)}{_cell(extra)} |"
    yield from ("", "| exit code | says |", "| --- | --- |")
    yield from (f"| {code} | {_cell(words)} |" for code, words in page.exits)
    if len(page.path) == 1:
        for title, rows in (("variable", ENVIRONMENT), ("file", FILES)):
            yield from ("", f"| {title} | |", "| --- | --- |")
            yield from (f"| `{name}` | {_cell(words)} |" for name, words in rows.items())
    if page.examples:
        yield from ("", "Examples:", "", "```bash")
        yield "\n\n".join(f"# {example.does}\n{example.line}" for example in page.examples)
        yield "```"


def _anchor(page: Page) -> str:
    return page.command.replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")
