"""The tree of click commands as pages, for every output format."""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click

from manual.notes import exits_of, related
from posd.cli.app.lazy import Example, LazyGroup, groups
from posd.cli.app.lazy import examples as all_examples
from posd.cli.main import main

#: Start of a paragraph whose lines are unchanged (click's own mark).
VERBATIM = "\b"


class Option(NamedTuple):
    """One option: its spelling, its effect, and its default or range (empty without one)."""

    typed: str
    help: str
    extra: str


class Page(NamedTuple):
    """One command with the whole content of its page. `path` is its name, as in ("posd", "tls", "init")."""

    path: tuple[str, ...]
    summary: str
    synopsis: str
    description: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    exits: tuple[tuple[int, str], ...]
    examples: tuple[Example, ...]
    see_also: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command as a user types it: posd tls init."""
        return " ".join(self.path)

    @property
    def name(self) -> str:
        """The name of its man page: posd-tls-init."""
        return "-".join(self.path)


def pages() -> list[Page]:
    """Return a page for every command, in the order of the help, groups before their commands."""
    return list(_walk(main, click.Context(main, info_name="posd", **main.context_settings)))


def _walk(command: click.Command, ctx: click.Context) -> Iterator[Page]:
    yield _page(command, ctx)
    for name, child in _children(command, ctx):
        yield from _walk(child, click.Context(child, info_name=name, parent=ctx))


def _children(command: click.Command, ctx: click.Context) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return []
    names = command.list_commands(ctx)
    if command is main:
        names = sorted(names, key=[name for group in groups().values() for name in group].index)
    found = ((name, command.get_command(ctx, name)) for name in names)
    return [(name, child) for name, child in found if child is not None and not child.hidden]


def _page(command: click.Command, ctx: click.Context) -> Page:
    path = tuple(ctx.command_path.split())
    paragraphs = [paragraph for paragraph in inspect.cleandoc(command.help or "").split("\n\n") if paragraph.strip()]
    first, rest = paragraphs[0], paragraphs[1:]
    # The first sentence is the summary. The rest of its paragraph begins the description.
    summary, _, more = " ".join(first.split()).partition(". ")
    children = [(name, _summary(child)) for name, child in _children(command, ctx)]
    pieces = command.collect_usage_pieces(ctx)
    if isinstance(command, LazyGroup) and command.invoke_without_command:
        pieces = [piece.replace("COMMAND [ARGS]...", "[COMMAND [ARGS]...]") for piece in pieces]
    return Page(
        path=path,
        summary=summary.removesuffix("."),
        synopsis=" ".join((ctx.command_path, *pieces)),
        description=tuple(filter(None, (more, *map(_paragraph, rest)))),
        commands=tuple(children),
        options=tuple(_options(command, ctx)),
        exits=exits_of(path[1:]),
        examples=tuple(all_examples().get(" ".join(path[1:]), ())),
        see_also=tuple(related(path[1:], [child for child, _ in children])),
    )


def _summary(command: click.Command) -> str:
    text = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".")


def _paragraph(text: str) -> str:
    return text if text.startswith(VERBATIM) else " ".join(text.split())


def _options(command: click.Command, ctx: click.Context) -> Iterator[Option]:
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is None or not isinstance(parameter, click.Option):
            continue
        typed, help_text = record
        # click adds a default or range in brackets, after two blanks.
        words = " ".join((parameter.help or "").split())
        extra = help_text[len(words) :].strip() if help_text.startswith(words) else ""
        yield Option(typed, words, extra.removeprefix("[").removesuffix("]"))
