"""Reading the posd commands of a text, and parsing each by click without running it."""

import re
import shlex
import uuid
from collections.abc import Iterator

import click

from posd.cli.main import main

#: Placeholders -> the words with which a command is parsed.
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

#: what ends a command in a shell.
OPERATORS = frozenset({"|", "||", "&&", ";", ">", ">>", "<", "&"})

#: A shell line that runs posd: its prefix, and its words.
LINE = re.compile(r"\s*(?:sudo (?:-u \S+ )?|time )*posd (?P<rest>.+)")

#: code of a Markdown text: blocks of a shell, and words in backticks.
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(posd [^`]+)`")


def commands_of(markdown: str) -> Iterator[str]:
    """Yield every posd command of a Markdown text, of its shell blocks and in backticks."""
    for block in BLOCK.findall(markdown):
        yield from filter(LINE.fullmatch, block.replace("\\\n", " ").splitlines())
    yield from INLINE.findall(FENCED.sub("", markdown))


def words_of(line: str) -> list[str]:
    """Return the words of a line that runs posd, without `posd` itself, up to a pipe, redirection and the like."""
    match = LINE.fullmatch(line)
    assert match, f"{line!r} does not run posd"
    lexer = shlex.shlex(match["rest"], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((place for place, word in enumerate(words) if word in OPERATORS), len(words))
    return [PLACEHOLDERS.get(word, word) for word in words[:end]]


def name_of(words: list[str]) -> str:
    """Return the command that words name, without the options of `posd` itself."""
    skip = iter(words)
    for word in skip:
        if word in {"--config", "--socket"}:
            next(skip, None)
        elif not word.startswith("-"):
            return word
    return ""


def parse(words: list[str]) -> None:
    """Parse a command line without running it. Raise click's UsageError if it is wrong."""
    command: click.Command = main
    ctx = main.make_context("posd", list(words))
    while isinstance(command, click.Group):
        rest = [*ctx._protected_args, *ctx.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(ctx, rest)
        assert found is not None
        command = found
        try:
            ctx = command.make_context(name, rest, parent=ctx)
        except click.BadParameter as error:
            asked = isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "note"
            if asked or "does not exist" in error.message:  # requested on a terminal; a file that is only an example
                return
            raise
