"""`posd explain`: what a code means, how it happens, whether money is at stake, and what to do."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import click
import msgspec

from posd.base.negotiation import Language
from posd.base.text import shown
from posd.cli.app.completion_words import offer
from posd.cli.app.connection import json_option
from posd.cli.app.output import Output, Pair
from posd.cli.app.tables import Layout
from posd.cli.explain import table
from posd.cli.explain.catalogue import choose, read
from posd.cli.explain.table import CodeEntry


def _codes(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    for code, rows in groupby(sorted(table.entries(), key=lambda entry: entry.code), key=lambda entry: entry.code):
        yield code, ", ".join(entry.of for entry in rows)


@click.command()
@click.argument("codes", nargs=-1, metavar="[CODE]...", shell_complete=offer(_codes))
@json_option
@click.pass_context
def explain(ctx: click.Context, output: Output, codes: tuple[str, ...]) -> None:
    """Explain what a code means, how it happens, whether money is at stake, and what to do.

    CODE is of a problem, an attention, a display, a next step, a result, a check, a limit, a line of the log, or
    another word of posd's. Without it all of them are listed. No daemon is asked. The texts are in Spanish where the
    locale is (LANG=es_EC.UTF-8), or the configuration says `language = "es"`.
    """
    language = choose(ctx)
    found = [entry for code in codes for entry in _find(code, language)] if codes else [*table.entries(language)]
    if output.as_json:
        output.json(msgspec.json.encode(found))
    elif codes:
        for place, entry in enumerate(found):
            if place and not output.rich:
                output.line()
            _show(output, entry)
    else:
        _list(output, found)


def _find(code: str, language: Language) -> Sequence[CodeEntry]:
    found = table.find(code, language)
    if not found:
        meant = " or ".join(table.near(code))
        hint = f"; did you mean {meant}?" if meant else ""
        raise click.UsageError(f"posd has no code {shown(code)}{hint} (posd explain lists all of them)")
    return found


def _show(output: Output, entry: CodeEntry) -> None:
    """Write one entry."""
    means, comes, money, do, more = read(entry.language)["labels"].values()
    pairs: list[Pair] = [(means, entry.means), (comes, entry.comes), (money, entry.money), (do, entry.do)]
    pairs = [(label, text) for label, text in pairs if text]
    pairs += [("", f"  {command}") for command in entry.commands]
    if entry.see:
        pairs.append((more, f"docs/guides/operations.md: {entry.see}"))
    output.panel(entry.title, pairs, "cyan")


def _list(output: Output, found: Sequence[CodeEntry]) -> None:
    """Write all entries: on a terminal a table for each kind, else a line each."""
    if not output.rich:
        output.table(("kind", "code", "means"), [(entry.kind, entry.code, entry.means) for entry in found])
        return
    for _, group in groupby(found, key=lambda entry: entry.kind):
        entries = list(group)
        first, means = entries[0], read(entries[0].language)["labels"]["means"]
        output.line(first.of[:1].upper() + first.of[1:], "bold")
        output.line(table.kinds(first.language)[first.kind].where, "dim")
        output.table(("code", means), [(one.code, one.means) for one in entries], Layout(whole="code"))
        output.line()
