"""Groups of commands that are imported only when they are called: a command must not wait for the others."""

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

#: Columns that help and other prose take at most, on a terminal however wide: longer lines are hard to read.
READABLE_COLUMNS = 100

#: command -> "module:attribute" of its click command, in the order in which the help shows them.
Targets = Mapping[str, str]


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use."""

    def __init__(self, *args: Any, targets: Targets, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._targets)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the names of the commands, and the group's own options; no command is imported for that."""
        names = [CompletionItem(name) for name in self._targets if name.startswith(incomplete)]
        return names + super(click.Group, self).shell_complete(ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        target = self._targets.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        _add_examples(command)
        return command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples of the group."""
        write_examples(ctx, formatter)


def write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command at the end of its help."""
    from posd.cli.app.help import EXAMPLES  # no command needs them that runs

    examples = EXAMPLES.get(" ".join(ctx.command_path.split()[1:]), ())
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example.does}\n")
            formatter.write(f"{'':{formatter.current_indent + 2}}{example.line}\n")


def _add_examples(command: click.Command) -> None:
    command.format_epilog = write_examples  # type: ignore[method-assign]
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        _add_examples(child)
