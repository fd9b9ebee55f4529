"""Groups of commands that are imported only when they are called: a command must not wait for the others."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

#: command -> "module:attribute" of its click command, in the order in which the help shows them.
Targets = Mapping[str, str]


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use."""

    def __init__(self, *args: Any, targets: Targets, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        target = self._targets.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
