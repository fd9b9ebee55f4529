"""Reading the posd commands of a text, and parsing each by click without running it."""

import re
import shlex
import uuid
from collections.abc import Iterator

import click

from posd.cli.main import main

#: words that stand for something -> what a command is parsed with instead.
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
    "N": "1",
}

#: what ends a command in a shell.
OPERATORS = frozenset({"|", "||", "&&", ";", ">", ">>", "<", "&"})

#: code of a Markdown text: blocks of a shell, and words in backticks.
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(posd [^`]+)`")


def commands_of(markdown: str) -> Iterator[str]:
    """Yield every posd command of a Markdown text, of its shell blocks and in backticks."""
    for block in BLOCK.findall(markdown):
        yield from (line for line in block.replace("\\\n", " ").splitlines() if re.search(r"\bposd [a-z-]", line))
    yield from INLINE.findall(FENCED.sub("", markdown))


def words_of(line: str) -> list[str]:
    """Return the words of the first posd command in a line of a shell, without `posd`; empty where there is none."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    starts = [place for place, word in enumerate(words) if word == "posd" or word.endswith("/posd")]
    if not starts:
        return []
    rest = words[starts[0] + 1 :]
    end = next((place for place, word in enumerate(rest) if word in OPERATORS), len(rest))
    return [PLACEHOLDERS.get(word, word) for word in rest[:end]]


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
    """Parse a command line and run nothing. Raise click's UsageError where it is wrong."""
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
            if "does not exist" in error.message:  # the file is only an example
                return
            raise
