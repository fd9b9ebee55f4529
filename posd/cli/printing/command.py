"""`posd print` and `posd print-jobs`: a text or a document on a terminal's printer, once, and how it ended."""

import sys
import uuid
from pathlib import Path
from typing import Any

import click
import msgspec

from posd.cli.app.completion_words import files, serials
from posd.cli.app.completion_words import print_jobs as print_job_ids
from posd.cli.app.connection import Api, connect, decode, json_option
from posd.cli.app.context import context
from posd.cli.app.find_id import find
from posd.cli.app.output import Output
from posd.cli.app.parameters import job_id
from posd.cli.app.subject import await_end, deadline_in, run, show_attention, show_list, terminal_option, timeout_option
from posd.cli.payments import words
from posd.cli.printing.progress import PRINT_JOB, hint, job_pairs, show_end
from posd.client.documents import Verbatim, encode
from posd.config import ConfigError, examine
from posd.printing.request import MAX_DOCUMENT_BYTES

# What `posd print` reads: a file or standard input, as text or as the document of a terminal.

#: the member of the document that holds a text, where no configuration can be read that names it.
TEXT_MEMBER = "text"
#: the member that holds a list of commands, which terminals of the newer edition print.
COMMANDS_MEMBER = "commands"
#: control characters that a text has; any other is for a printer or a sign that the file is no text.
TEXT_CONTROLS = frozenset("\t\n\r\f")


def read_document(ctx: click.Context, file: str, terminal: str | None, *, as_text: bool) -> Any:
    """Return the document that a file (`-`: standard input) makes, to be encoded: a text under its member, or as it is.

    Raise BadParameter where it can be neither, and ConfigError.
    """
    text = _text(_content(file), file)
    if not as_text and text.lstrip().startswith("{"):
        return _json(text, file)
    _check_plain(text, file)
    document = text_document(ctx, text, terminal)
    _check_size(len(msgspec.json.encode(document)), file)
    return document


def text_document(ctx: click.Context, text: str, terminal: str | None) -> dict[str, Any]:
    """Return the document of a text: under its member by the configuration, or as commands if it is a list of them.

    Raise ConfigError.
    """
    member = text_member(ctx, terminal)
    if member != COMMANDS_MEMBER:
        return {member: text}
    return {member: [{"type": "text", "text": text if text.endswith("\n") else f"{text}\n"}]}


def _show_paper(output: Output, document: Any, file: str) -> None:
    """Write what a simulated terminal prints of a document. Raise BadParameter where it is nested too deeply."""
    from posd.simulator import printer, wire

    try:
        paper = printer.on_paper(wire.decode(encode(document)))
    except ValueError as error:
        raise _refused(f"{_name(file)} cannot be printed: {error}") from error
    for line in paper.splitlines():
        output.verbatim(line)


def _content(file: str) -> bytes:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise _refused(f"cannot read {_name(file)}: {error.strerror}") from error
    _check_size(len(content), file)
    return content


def _check_size(size: int, file: str) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise _refused(
            f"{_name(file)} is too large: a document has at most {MAX_DOCUMENT_BYTES // 1024} KiB; print it in parts"
        )


def _text(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(
            f"{_name(file)} is not UTF-8 text (byte {error.start}). Text in another encoding can be converted (iconv "
            "-f LATIN1 -t UTF-8); an image or a printer's own commands have to stand in a JSON document, as the "
            "terminal wants them"
        ) from error
    if not text.strip():
        raise _refused(f"{_name(file)} is empty: there is nothing to print")
    return text


def _check_plain(text: str, file: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        found = next((char for char in line if not char.isprintable() and _steers(char)), None)
        if found is not None:
            raise _refused(
                f"{_name(file)} is not plain text: line {number} has the control character 0x{ord(found):02x}. What "
                "steers a printer has to stand in a JSON document, as the terminal wants it"
            )


def _steers(char: str) -> bool:
    return (char < " " or "\x7f" <= char <= "\x9f") and char not in TEXT_CONTROLS


def _json(text: str, file: str) -> Verbatim:
    try:
        document = decode(text)
    except (ValueError, RecursionError) as error:
        raise _refused(
            f"{_name(file)} begins like a JSON object and is none ({error}). Mend it, or say --text to print it as text"
        ) from error
    if not document:
        raise _refused(f"{_name(file)} is an empty JSON object: there is nothing to print")
    return Verbatim(text)


def text_member(ctx: click.Context, terminal: str | None) -> str:
    """Return the member of a document that holds a text, by the configuration. Raise ConfigError.

    `terminal`: the serial of the one that prints, None if any of the configuration may.
    """
    config, problems = examine(Path(context(ctx).config_path), check_files=False)
    if config is not None and any(problem.key.startswith("print") for problem in problems):
        raise ConfigError(problems)  # else the terminal gets the text under a name that is not meant
    if config is None:
        return TEXT_MEMBER
    editions = {item.edition for item in config.terminals if terminal in (None, item.serial)}
    if editions == {"2026"} and config.sources["print.text_member"] == "default":
        return COMMANDS_MEMBER  # these print nothing but commands
    return config.print_.text_member


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _refused(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="FILE")


@click.command("print")
@click.argument("file", metavar="FILE", shell_complete=files)
@terminal_option
@click.option("--reference", metavar="TEXT", help="What it belongs to: the terminal gives it back, lists show it.")
@click.option("--reprint-of", metavar="ID", help="The print job that this one prints again.")
@click.option("--text", "as_text", is_flag=True, help="Print FILE as text, even if it is a JSON object.")
@click.option("--preview", is_flag=True, help="Show what would stand on the paper; send nothing.")
@click.option("--id", "given_id", type=job_id, metavar="ID", help="Its id; made here where left out.")
@click.option("--no-wait", is_flag=True, help="Only start it (exit code 0 once it runs).")
@timeout_option
@json_option
@click.pass_context
def print_(
    ctx: click.Context,
    /,
    output: Output,
    file: str,
    as_text: bool,
    preview: bool,
    given_id: str | None,
    no_wait: bool,
    timeout: float | None,
    **given: str | None,
) -> None:
    """Print FILE on a terminal.

    A text (UTF-8) becomes a document; a file that is a JSON object is sent unchanged. "-" is standard input.

    --preview shows what a simulated terminal prints of it, and sends nothing: it needs neither the daemon nor a
    terminal. Widths are assumed. What is in brackets does not stand on the paper.

    The command waits for the end of the print job. Repeated with the same --id and all else the same it never prints a
    second time: it joins the first. Exit code 0: printed. 1: it failed, or was not taken. 4: still open.
    """
    if preview and output.as_json:
        raise click.UsageError("--preview draws for people: leave out --json")
    document = read_document(ctx, file, given["terminal"], as_text=as_text)
    if preview:
        _show_paper(output, document, file)
        return
    deadline = deadline_in(timeout)
    fields = {
        "terminal": given["terminal"],
        "external_reference": given["reference"],
    }
    request: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if given["reprint_of"] is not None:
        _, request["reprint_of"] = find(ctx, output, given["reprint_of"], PRINT_JOB)
    request["document"] = document
    draft = {"print_job_id": given_id or str(uuid.uuid4())}
    run(ctx, output, PRINT_JOB, draft, request, deadline=deadline, no_wait=no_wait, fresh=given_id is None)


# `posd print-jobs`: print jobs, the newest first, or one with all that happened to it.


@click.command("print-jobs")
@click.argument("identity", metavar="[ID]", required=False, shell_complete=print_job_ids())
@click.option("--open", "only_open", is_flag=True, help="Only those that are not final.")
@click.option("--attention", is_flag=True, help="Only those that a person should look at.")
@click.option("--terminal", metavar="SERIAL", shell_complete=serials, help="Only this terminal.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at a time.")
@click.option("--all", "everything", is_flag=True, help="All of them, not only the newest (--json: a page a line).")
@click.option("--wait", "waiting", is_flag=True, help="With ID: wait for its end (exit codes as of posd print).")
@json_option
@click.pass_context
def print_jobs(
    ctx: click.Context,
    output: Output,
    identity: str | None,
    only_open: bool,
    attention: bool,
    terminal: str | None,
    limit: int,
    everything: bool,
    waiting: bool,
) -> None:
    """List print jobs, the newest first.

    With ID: everything about one of them, with its history.
    """
    if identity is None:
        if waiting:
            raise click.UsageError("--wait is for one print job: name its ID")
        filters = {"limit": limit, "open": only_open, "attention": attention, "terminal": terminal or None}
        show_list(ctx, output, PRINT_JOB, filters, everything=everything)
        return
    _, identity = find(ctx, output, identity, PRINT_JOB)
    if waiting:
        await_end(ctx, output, PRINT_JOB, {"print_job_id": identity}, None)
    with connect(ctx) as api:
        if output.as_json:
            output.json(api.get(PRINT_JOB.path(identity)).raw)
        else:
            show_all(output, api, PRINT_JOB.path(identity))


def show_all(output: Output, api: Api, path: str) -> None:
    """Write everything about the print job of that path. Raise Problem or Unreachable."""
    job, happened = api.get(path).body, api.get(f"{path}/history").body["history"]
    output.panel(f"print job {PRINT_JOB.id(job)}", job_pairs(job), "cyan")
    if job["phase"] == "final":
        show_end(output, job)
    else:
        output.line(f"now: {hint(job)}")
    show_attention(output, PRINT_JOB, job)
    # A webhook's body says no more than the fields beside it, at length.
    told = [{name: value for name, value in entry.items() if name != "body"} for entry in happened]
    output.table(("time", "what", "details"), words.rows(told, {}))
