"""Readers of the posd commands in a text. click parses each command without running it."""

import re
import shlex
import uuid

import click

from posd.cli.main import main

#: Placeholder -> word for the parser.
PLACEHOLDERS = {
    "ID": str(uuid.UUID(int=1)),
    "ORIGINAL": str(uuid.UUID(int=2)),
    "UUID": str(uuid.UUID(int=3)),
    "SERIAL": "SN-0001",
    "RESULT": "approved",
    "CODE": "gap",
    "AMOUNT": "1.00",
    "FILE": "file",
    "NAME": "Ana",
    "TEXT": "a note",
    "HEX": "00",
    "DIR": "directory",
    "N": "1",
}

#: Characters that end a command in a shell.
OPERATORS = frozenset({"|", "||", "&&", ";", ">", ">>", "<", "&"})

#: A shell line that runs posd, as a prefix and words.
LINE = re.compile(r"\s*(?:sudo (?:-u \S+ )?|time )*posd (?P<rest>.+)")


def words_of(line: str) -> list[str]:
    """Return the words after `posd` in a line, up to a pipe, a redirection or another end."""
    match = LINE.fullmatch(line)
    assert match, f"{line!r} does not run posd"
    lexer = shlex.shlex(match["rest"], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((place for place, word in enumerate(words) if word in OPERATORS), len(words))
    return [PLACEHOLDERS.get(word, word) for word in words[:end]]


def parse(words: list[str]) -> None:
    """Parse a command line without running it. Raise click's UsageError for a wrong line."""
    command: click.Command = main
    ctx = main.make_context("posd", list(words))
    while isinstance(command, click.Group):
        rest = [*ctx._protected_args, *ctx.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(ctx, rest)
        command = found
        try:
            ctx = command.make_context(name, rest, parent=ctx)
        except click.BadParameter as error:
            asked = isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "note"
            if asked or "does not exist" in error.message:  # posd asks for a note on a terminal; the file is an example
                return
            raise
