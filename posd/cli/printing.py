"""`posd print`: display of print jobs, and start of one from a text or a document."""

import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from posd.base.limits import MAX_DOCUMENT_BYTES
from posd.cli.app.completion_words import files
from posd.cli.app.connection import Api, Reply, decode, json_option
from posd.cli.app.context import context, for_print_job
from posd.cli.app.outcome import CurrentState, Disconnected, Update, follow_print_job
from posd.cli.app.output import Output, Pair
from posd.cli.app.parameters import check_usage, job_id
from posd.cli.app.subject import (
    Progress,
    Subject,
    deadline_in,
    find,
    run,
    show_attention,
    terminal_option,
    timeout_option,
)
from posd.cli.app.tables import Id
from posd.cli.app.times import moment
from posd.cli.explain.catalogue import Advice, advice, chosen, named, say, translate
from posd.cli.payments import words
from posd.cli.payments.words import known_advice
from posd.client.documents import Verbatim, encode
from posd.config import ConfigError, examine


def hint(job: Mapping[str, Any]) -> str:
    """Return the present step of an open print job, in one line."""
    hints, status = chosen("hint"), job["status"]
    if job["phase"] == "in_doubt" or status is None:
        return str(hints["print_in_doubt" if job["phase"] == "in_doubt" else "asking"])
    return str(chosen("printing").get(status, {}).get("hint", translate(f"the terminal says {status}")))


def state(job: Mapping[str, Any]) -> str:
    """Return the state of a print job in a few words."""
    if job["phase"] == "final":
        return _end(job)["short"]
    if job["phase"] != "active":
        return named(str(job["phase"]).replace("_", " "))
    return str(chosen("printing").get(job["status"], {}).get("short", job["status"] or "taken"))


def meaning(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return the style and the meaning of a final print job's end."""
    end = _end(job)
    known = end is not chosen("printed")["unknown"]
    return "green" if job["status"] == "COMPLETED" else "red" if known else "yellow", end["means"]


def next_step(job: Mapping[str, Any]) -> Advice:
    """Return the advice on a print job in its present state."""
    if job["phase"] != "final":
        return known_advice("printing")
    return known_advice("printed" if job["status"] == "COMPLETED" else "print_again")


def attention_advice(code: str) -> Advice:
    """Return the advice on an attention of a print job."""
    return advice("print", code) or known_advice("unknown")._replace(commands=("posd show {id}",))


def _end(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the texts for the end of a print job, by its status and `decided_by`."""
    ends, status, by = chosen("printed"), job["status"], job["decided_by"]
    return dict(ends.get(f"{status} {by}") or ends.get(status or by) or ends["unknown"])


class PrintProgress(Progress):
    """Writer of the updates of one print job."""

    def __init__(self, output: Output, job: Mapping[str, Any]) -> None:
        super().__init__(output, PRINT_JOB, job)
        self._status: str | None = None

    def show(self, update: Update) -> None:
        """Write the text of one update."""
        if isinstance(update, Disconnected):
            self.away(update.reason)
        elif isinstance(update, CurrentState):
            self.back()
            self._snapshot(update.transaction)

    def _snapshot(self, job: Mapping[str, Any]) -> None:
        if job["status"] not in (None, self._status):
            self._status = job["status"]
            self.output.line(f"{self.output.moment(job['updated_at'])}  {job['status']}")
        if job["phase"] != "final":
            self.show_open(job)


def job_pairs(job: Mapping[str, Any]) -> list[Pair]:
    """Return label and value of each field of a print job that is not empty."""
    fields = {
        "terminal": job["terminal"] or "not known here",
        "reference": job["external_reference"],
        "reprint of": job["reprint_of"],
        "printed again": ", ".join(job.get("reprints", ())),
        "terminal's id": job.get("terminal_job_id"),
        "created": moment(job["created_at"], date=True),
        "state": f"{state(job)} {named('since')} {moment(job['updated_at'], date=True)}",
        "error": error_text(job),
        "why": translate(job.get("reason") or ""),
        "proof": chosen("decided_by").get(job["decided_by"], job["decided_by"]),
    }
    return [(label, str(value)) for label, value in fields.items() if value]


def error_text(job: Mapping[str, Any]) -> str:
    """Return why a print job failed: the printer's message and its code. The text is empty if both are missing."""
    code, message = job["error_code"], job["error_message"]
    return f"{message} ({code})" if message and code else str(message or code or "")


def show_end(output: Output, job: Mapping[str, Any]) -> None:
    """Write the end of a print job: in a frame on a terminal, as lines in a pipe."""
    style, words = meaning(job)
    following = next_step(job)
    identity = job["print_job_id"]
    pairs = [
        ("result", words),
        *(pair for pair in job_pairs(job) if pair[0] not in ("created", "state")),
        ("print job", identity),
        ("next", following.words),
    ]
    output.panel(state(job), pairs + [("", command.format(id=identity)) for command in following.commands], style)


def _updates(api: Api, reply: Reply, deadline: float | None) -> Iterator[Update]:
    """Yield the present state, and then the updates."""
    yield CurrentState(reply)
    yield from follow_print_job(api, PRINT_JOB.path(reply.body["print_job_id"]), deadline=deadline)


PRINT_JOB = Subject(
    plural="print_jobs",
    list="posd list --print-jobs",
    uuids=False,
    key="print_job_id",
    word="print job",
    title="print job",
    noun=lambda _: "print job",
    state=state,
    hint=hint,
    advice=lambda code, _: attention_advice(code),
    summary=job_pairs,
    columns={"reference": lambda job: job["external_reference"] or ""},
    extra={"reprint of": lambda job: Id(job["reprint_of"] or ""), "error": lambda job: error_text(job)},
    show_end=show_end,
    exit_code=for_print_job,
    follow=_updates,
    progress=PrintProgress,
)


# Input of `posd print`: a file or standard input, with text or a terminal's document.

#: Member of a document with the text, if no readable configuration names another.
TEXT_MEMBER = "text"
#: Member of a document with a list of commands, for terminals of the newer edition.
COMMANDS_MEMBER = "commands"
#: Control characters that a text may have. Any other control character is a printer command, or shows that the file is
#: no text.
TEXT_CONTROLS = frozenset("\t\n\r\f")


def read_document(ctx: click.Context, file: str, terminal: str | None, *, as_text: bool) -> Any:
    """Return the document to print from a file (`-`: standard input): made from a text, or a JSON object unchanged.

    Raise ConfigError. Raise BadParameter if the content is neither text nor a JSON object.
    """
    text = _text(_content(file), file)
    if not as_text and text.lstrip().startswith("{"):
        return _json(text, file)
    for number, line in enumerate(text.split("\n"), 1):
        if (found := next(filter(_steers, line), None)) is not None:
            raise _refused("not_plain", file, line=number, code=ord(found))
    document = text_document(ctx, text, terminal)
    _check_size(len(msgspec.json.encode(document)), file)
    return document


def text_document(ctx: click.Context, text: str, terminal: str | None) -> dict[str, Any]:
    """Return the document that prints a text: with the text in the configured member, or in a list of commands.

    Raise ConfigError.
    """
    member = text_member(ctx, terminal)
    if member != COMMANDS_MEMBER:
        return {member: text}
    return {member: [{"type": "text", "text": text if text.endswith("\n") else f"{text}\n"}]}


def _show_paper(output: Output, document: Any, file: str) -> None:
    """Write what a simulated terminal prints for a document. Raise BadParameter if it is nested too deeply."""
    from posd.simulator import printer, wire

    try:
        paper = printer.on_paper(wire.decode(encode(document)))
    except ValueError as error:
        raise _refused("not_printed", file, error=error) from error
    output.verbatim(*paper.splitlines())


def _content(file: str) -> bytes:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise _refused("not_read", file, reason=error.strerror) from error
    _check_size(len(content), file)
    return content


def _check_size(size: int, file: str) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise _refused("too_large", file, most=MAX_DOCUMENT_BYTES // 1024)


def _text(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused("not_utf8", file, byte=error.start) from error
    if not text.strip():
        raise _refused("empty", file)
    return text


def _steers(char: str) -> bool:
    return (char < " " or "\x7f" <= char <= "\x9f") and char not in TEXT_CONTROLS


def _json(text: str, file: str) -> Verbatim:
    try:
        document = decode(text)
    except (ValueError, RecursionError) as error:
        raise _refused("not_json", file, error=error) from error
    if not document:
        raise _refused("empty_json", file)
    return Verbatim(text)


def text_member(ctx: click.Context, terminal: str | None) -> str:
    """Return the name of the member that holds the text of a print document, by the configuration. Raise ConfigError.

    `terminal`: serial of the terminal that prints; None: any configured terminal.
    """
    config, problems = examine(Path(context(ctx).config_path), check_files=False)
    if config is not None and any(problem.key.startswith("print") for problem in problems):
        raise ConfigError(problems)  # otherwise the terminal would get the text under a wrong name
    if config is None:
        return TEXT_MEMBER
    editions = {item.edition for item in config.terminals if terminal in (None, item.serial)}
    if editions == {"2026"} and config.sources["print.text_member"] == "default":
        return COMMANDS_MEMBER  # terminals of the newer edition print only commands
    return config.print_.text_member


def _refused(why: str, file: str, **words: object) -> click.BadParameter:
    name = named("standard input") if file == "-" else file
    return click.BadParameter(say("print", why, file=name, **words), param_hint="FILE")


@click.command("print")
@click.argument("file", metavar="FILE", shell_complete=files)
@terminal_option
@click.option("--reference", metavar="TEXT", help="Your reference for the job, which the terminal returns.")
@click.option("--reprint-of", metavar="ID", help="The print job that this one prints again.")
@click.option("--text", "as_text", is_flag=True, help="Print FILE as text, even if it is a JSON object.")
@click.option("--preview", is_flag=True, help="Show the printed text; send nothing.")
@click.option("--id", "given_id", type=job_id, metavar="ID", help="Its id; if omitted, a new one.")
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

    A text (UTF-8) becomes a document. A file that is a JSON object is sent unchanged. "-" is standard input.

    --preview shows what a simulated terminal prints, and sends nothing. The preview needs no daemon and no terminal.
    Widths are assumed. Text in brackets is not on the paper.

    The command waits for the end of the print job. A repeat with the same --id and the same arguments never prints a
    second time: it waits for the first job. Exit code 0: printed. 1: it failed, or the terminal did not accept it. 4:
    still open.
    """
    check_usage("print", preview=preview and output.as_json)
    document = read_document(ctx, file, given["terminal"], as_text=as_text)
    if preview:
        _show_paper(output, document, file)
        return
    deadline = deadline_in(timeout)
    fields = {"terminal": given["terminal"], "external_reference": given["reference"]}
    request: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if given["reprint_of"] is not None:
        _, request["reprint_of"] = find(ctx, output, given["reprint_of"], PRINT_JOB)
    request["document"] = document
    draft = {"print_job_id": given_id or str(uuid.uuid4())}
    run(ctx, output, PRINT_JOB, draft, request, deadline=deadline, no_wait=no_wait, fresh=given_id is None)


def show_all(output: Output, api: Api, path: str, *, only_history: bool = False) -> None:
    """Write the print job at a path of the API, or only its history. Raise Problem or Unreachable."""
    job, happened = None if only_history else api.get(path).body, api.get(f"{path}/history").body["history"]
    if job is not None:
        output.panel(f"{named('print job')} {PRINT_JOB.id(job)}", job_pairs(job), "cyan")
        if job["phase"] == "final":
            show_end(output, job)
        else:
            output.line(f"now: {hint(job)}")
        show_attention(output, PRINT_JOB, job)
    # Omit the body of a webhook, because the entry has the same fields.
    told = [{name: value for name, value in entry.items() if name != "body"} for entry in happened]
    output.table(("time", "what", "details"), words.rows(told, {}))
