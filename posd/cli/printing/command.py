"""`posd print`: a text or a document on a terminal's printer, once, and how it ended."""

import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from posd.base.ids import ID_RULE, is_print_job_id
from posd.cli.app.completion_words import files, serials
from posd.cli.app.connection import Api, Problem, Reply, Unreachable, connect, decode, json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode, for_print_job
from posd.cli.app.output import Output
from posd.cli.app.waiting import Snapshot, TimedOut, follow_print_job
from posd.cli.payments.await_outcome import DOUBTFUL, begin, deadline_in, not_known, timeout_option
from posd.cli.printing.progress import GOES_ON, PrintProgress, hint, show_attention, show_end
from posd.client.documents import Verbatim
from posd.config import load
from posd.printing.request import MAX_DOCUMENT_BYTES

# What `posd print` reads: a file or standard input, as text or as the document of a terminal, and the id of a job.

#: the member of the document that holds a text, where there is no configuration to name it.
TEXT_MEMBER = "text"
#: control characters that a text has; any other is for a printer or a sign that the file is no text.
TEXT_CONTROLS = frozenset("\t\n\r\f")


def job_id(text: str) -> str:
    """Click type: the id of a print job. Raise BadParameter."""
    if not is_print_job_id(text):
        raise click.BadParameter(f"{text!r} is not the id of a print job: it {ID_RULE}")
    return text


def read_document(ctx: click.Context, file: str, *, as_text: bool) -> Any:
    """Return the document that a file (`-`: standard input) makes, to be encoded: a text under its member, or as it is.

    Raise BadParameter where it can be neither, and ConfigError.
    """
    text = _text(_content(file), file)
    if not as_text and text.lstrip().startswith("{"):
        return _json(text, file)
    _check_plain(text, file)
    document = {_text_member(ctx): text}
    _check_size(len(msgspec.json.encode(document)), file)
    return document


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


def _text_member(ctx: click.Context) -> str:
    # Who names the socket need not have a configuration; one that is there has to be right.
    if context(ctx).socket_path and not Path(context(ctx).config_path).exists():
        return TEXT_MEMBER
    return load(Path(context(ctx).config_path), check_files=False).print_.text_member


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _refused(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="FILE")


SENT_BEFORE = "This call sent nothing to the printer; an earlier one with the same --id may have."


@click.command("print")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option(
    "--terminal",
    metavar="SERIAL",
    shell_complete=serials,
    help="The terminal; may be left out where there is only one.",
)
@click.option("--reference", metavar="TEXT", help="What it belongs to: the terminal gives it back, lists show it.")
@click.option("--reprint-of", type=job_id, metavar="ID", help="The print job of which this is a reprint.")
@click.option("--text", "as_text", is_flag=True, help="Print FILE as text, even where it is a JSON object.")
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
    given_id: str | None,
    no_wait: bool,
    timeout: float | None,
    **given: str | None,
) -> None:
    """Print FILE on a terminal.

    A text (UTF-8) becomes a document; a file that is a JSON object is sent as it stands. "-" is standard input.

    The command waits for the end of the print job. Repeated with the same --id and all else the same it never prints a
    second time: it joins the first. Exit code 0: printed. 1: it failed, or was not taken. 4: still open.
    """
    deadline = deadline_in(timeout)
    fields = {
        "terminal": given["terminal"],
        "external_reference": given["reference"],
        "reprint_of": given["reprint_of"],
    }
    request: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    request["document"] = read_document(ctx, file, as_text=as_text)
    identity = given_id or str(uuid.uuid4())
    context(ctx).starts = True
    with connect(ctx) as api, PrintProgress(output) as progress:
        # Before the call: whatever happens from here on, the id is on the screen.
        write = output.note if output.as_json else output.line
        write(f"print job {identity}")
        reply = begin(
            api,
            progress,
            f"/print-jobs/{identity}",
            request,
            deadline=deadline,
            nothing=SENT_BEFORE if given_id else "Nothing was sent to the printer.",
            maybe="It may have been sent to the printer, and then it goes on",
            leave=partial(leave_open, progress, identity),
        )
        if reply.body["phase"] != "final" and not no_wait:
            reply = wait(api, progress, reply, deadline)
    if reply.body["phase"] in DOUBTFUL:
        leave_open(progress, identity, "It may have been sent to the printer: that is not known", reply)
    if reply.body["phase"] != "final":
        _show_started(output, reply)
    finish(output, reply)


def wait(api: Api, progress: PrintProgress, reply: Reply, deadline: float | None) -> Reply:
    """Follow the print job until it is final; leave the program with OPEN where that is not to be had.

    So it does at the deadline, on Ctrl-C, and where posd fails and goes on failing: that is no outcome.
    """
    identity = reply.body["print_job_id"]
    try:
        progress.show(Snapshot(reply))
        for update in follow_print_job(api, f"/print-jobs/{identity}", deadline=deadline):
            progress.show(update)
            if isinstance(update, Snapshot):
                reply = update.reply
    except TimedOut:
        leave_open(progress, identity, f"Still open; {GOES_ON}", reply)
    except KeyboardInterrupt:
        leave_open(progress, identity, f"Stopped waiting; {GOES_ON}", reply)
    except (Problem, Unreachable) as error:
        leave_open(progress, identity, not_known(error), reply)
    return reply


def leave_open(progress: PrintProgress, identity: str, why: str, reply: Reply | None = None) -> NoReturn:
    """Say why a print job is left open and how to ask again, and leave the program; `reply` is what --json shows."""
    progress.close()
    output = progress.output
    if output.as_json and reply is not None:
        output.json(reply.raw)
    output.note(
        f"{why}.\n"
        f"  how it stands:   posd print-jobs {identity}\n"
        f"  to wait for it:  posd print-jobs {identity} --wait\n"
        "Do not print it again under another id before that is known.",
        style="yellow",
    )
    sys.exit(ExitCode.OPEN)


def finish(output: Output, reply: Reply) -> NoReturn:
    """Write how a print job ended, and leave the program by it."""
    if output.as_json:
        output.json(reply.raw)
    else:
        show_end(output, reply.body)
        show_attention(output, reply.body)
    sys.exit(for_print_job(reply.body))


def _show_started(output: Output, reply: Reply) -> NoReturn:
    if output.as_json:
        output.json(reply.raw)
    job = reply.body
    output.line(f"sent to {job['terminal']}: {hint(job)}")
    output.line(f"how it stands: posd print-jobs {job['print_job_id']}")
    sys.exit(ExitCode.DONE)
