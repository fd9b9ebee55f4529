"""Command groups whose commands are imported when they are called, and the translation and examples of their help.

A call must not load the other commands, nor the TOML files of the help.
"""

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from posd.base.operations import OPERATIONS, Operation

#: Maximum width of text in columns, even on a wider terminal, because longer lines are hard to read.
READABLE_COLUMNS = 100

#: Command -> "module:attribute" of its click command, or of a mapping from names to commands.
Targets = Mapping[str, str]


def speaks_spanish() -> bool:
    """Return whether the user's locale is Spanish."""
    return (os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or "").startswith("es")


def told(text: str) -> str:
    """Return a heading, a paragraph or the help of an option in the language of the locale.

    A text without a translation is unchanged.
    """
    if not speaks_spanish():
        return text
    words, gap, default = text.partition("  [")
    words = " ".join(words.split())
    sign = words[-1:] if words.endswith((".", ":")) else ""
    known = _read("../explain/es.toml")["help"]
    found = known.get(words.removesuffix(sign))
    return text if found is None else f"{found}{sign}{gap}{known.get(default, default)}"


class HelpFormatter(click.HelpFormatter):
    """Formatter of help in the language of the locale."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, told("Usage:") + " " if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        super().write_heading(told(heading))

    def write_text(self, text: str) -> None:
        super().write_text("\n\n".join(map(told, text.split("\n\n"))))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, told(text)) for name, text in rows], col_max, col_spacing)


class HelpContext(click.Context):
    """Context of a command whose help is in the language of the locale."""

    formatter_class = HelpFormatter


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use. `aliases`: old names, which no list shows."""

    context_class = HelpContext

    def __init__(self, *args: Any, targets: Targets, aliases: Targets | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._targets = targets
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._targets)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the names of the commands and the group's own options, without importing a command."""
        names = [CompletionItem(name) for name in self._targets if name.startswith(incomplete)]
        return names + super(click.Group, self).shell_complete(ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        target = self._targets.get(cmd_name) or self._aliases.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        found = getattr(importlib.import_module(module), attribute)
        command: click.Command = found[cmd_name] if isinstance(found, Mapping) else found
        _add_examples(command)
        return command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples of the group."""
        write_examples(ctx, formatter)


def write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command at the end of its help."""
    with formatter.section("Examples"):
        for example in examples().get(" ".join(ctx.command_path.split()[1:]), ()):
            formatter.write(f"{'':{formatter.current_indent}}{told(example.does)}\n")
            formatter.write(f"{'':{formatter.current_indent + 2}}{example.line}\n")


def _add_examples(command: click.Command) -> None:
    command.format_epilog = write_examples  # type: ignore[method-assign]
    command.context_class = HelpContext
    command.short_help = " ".join((command.help or "").partition("\n\n")[0].split())
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        _add_examples(child)


class Example(NamedTuple):
    """Example in a command's help: the command line, and what it does."""

    line: str
    does: str


def groups() -> Mapping[str, Mapping[str, str]]:
    """Return the groups in the help: title of the group -> command -> its purpose."""
    found = _read("groups.toml")
    return found | {"Pay": {row.command: row.purpose for row in OPERATIONS.values()} | found["Pay"]}


@cache
def examples() -> Mapping[str, Sequence[Example]]:
    """Return the examples of each command."""
    found = {row.command: _start_example(row) for row in OPERATIONS.values()} | _read("examples.toml")
    return {command: [Example(*example) for example in of.items()] for command, of in found.items()}


def _start_example(row: Operation) -> Mapping[str, str]:
    words = ("posd", row.command, "7f3c2a10" if row.originals else "", "5.00" if row.needs_amount else "")
    return {" ".join(filter(None, words)): f"{row.purpose}:"}


@cache
def _read(name: str) -> dict[str, Any]:
    import tomllib  # imported here, because only the help needs it

    return tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))
