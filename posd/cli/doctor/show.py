"""How findings are shown: a group a check, coloured, on a terminal; lines with tabs in a pipe."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from posd.cli.app.output import Output, escaped
from posd.cli.doctor.context import Finding, Status

#: status -> how it is written and coloured on a terminal; the words tell it without colours too.
MARKS: Mapping[Status, tuple[str, str]] = {
    Status.OK: ("ok", "green"),
    Status.WARNING: ("warning", "yellow"),
    Status.FAILURE: ("FAILURE", "bold red"),
}
#: characters of the column of the marks, indented by two.
MARK_COLUMNS = 9


def header(output: Output) -> None:
    """Name the columns, for programs."""
    output.line("\t".join(("status", "check", "subject", "meaning", "what to do")))


def group(output: Output, title: str, findings: Sequence[Finding]) -> None:
    """Write what one check has said."""
    if not output.rich:
        for one in findings:
            cells = (one.status, one.check, one.subject, one.meaning, one.todo)
            output.line("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in cells))
        return
    if not findings:
        return
    output.line(title, "bold")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, width=MARK_COLUMNS)
    grid.add_column(overflow="fold")
    for one in findings:
        mark, style = MARKS[one.status]
        words = Text.assemble((escaped(one.subject), "bold"), ": ", escaped(one.meaning))
        if one.todo:
            words.append(f"\n> {escaped(one.todo)}", style=style.removeprefix("bold "))
        grid.add_row(Text(f"  {mark}", style=style), words)
    output.stdout.print(grid)
    output.line()


def summary(output: Output, found: Sequence[Finding], *, unread: bool) -> None:
    """Write how many there are of each."""
    counts = {status: sum(one.status is status for one in found) for status in Status}
    failures, warnings = counts[Status.FAILURE], counts[Status.WARNING]
    text = f"{failures} {'failure' if failures == 1 else 'failures'}, "
    text += f"{warnings} {'warning' if warnings == 1 else 'warnings'}, {counts[Status.OK]} ok."
    if unread:
        text += " The configuration cannot be read: most could not be checked."
    if output.rich:
        output.line(text, "red" if failures else "yellow" if warnings else "green")
    else:
        output.note(text)
