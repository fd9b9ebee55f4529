"""The id that a person typed: in full, or as much of its beginning as one payment or print job alone has."""

import re
import uuid
from collections.abc import Iterator, Sequence

import click

from posd.base.ids import ID_RULE, is_print_job_id
from posd.cli.app.connection import connect
from posd.cli.app.errors import Failure
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.app.subject import Document, Subject
from posd.cli.app.tables import SHORT_ID, Id, Layout, laid_out
from posd.cli.app.times import TimeCell, moment
from posd.cli.explain.catalogue import say

#: Least characters of the beginning of a UUID.
LEAST = 4
#: The same where money moves: a slip of the finger must not name another payment.
LEAST_FOR_MONEY = SHORT_ID
#: So many ids that begin alike are listed.
LISTED = 10

_BEGINNING = re.compile("[0-9A-Fa-f-]{,36}", re.ASCII)

#: What was found: a payment or a print job.
Found = tuple[Subject, Document]


def find(ctx: click.Context, output: Output, text: str, *subjects: Subject, least: int = LEAST) -> tuple[Subject, str]:
    """Return of what the text is the id or the beginning of the id, and the whole id.

    A UUID in full is not looked for, nor is an id in full found twice. What a beginning was found to be is said on
    stderr. Raise Failure with USAGE where several begin so, with NOT_DONE where none does; BadParameter where it is no
    id; Problem or Unreachable.
    """
    if (whole := _uuid(text)) is not None:
        return subjects[0], whole if subjects[0].uuids else text
    asked = [subject for subject in subjects if _can_begin(text, subject, least)]
    if not asked:
        words = say(
            "find_id", "no_payment" if subjects[0].uuids else "no_print_job", text=text, least=least, rule=ID_RULE
        )
        raise click.BadParameter(words, param_hint="ID")
    found: list[Found] = []
    with connect(ctx) as api:
        for subject in asked:
            reply = api.get(f"/{subject.path_name}", {"id": text, "limit": str(LISTED + 1)})
            documents = reply.body[subject.plural]
            alike = [document for document in documents if subject.id(document).lower() == text.lower()]
            exact = [document for document in alike if subject.id(document) == text] or alike
            found += [(subject, document) for document in exact or documents]
    if not found:
        if not asked[0].uuids:
            return asked[0], text  # it may be whole: the command's own call says that there is none, or was one
        words = say(
            "find_id", "none", word=" or ".join(subject.word for subject in asked), text=text, see=asked[0].list
        )
        raise Failure(words, ExitCode.NOT_DONE, output)
    if len(found) > 1:
        raise Failure([say("find_id", "several", text=text), *_candidates(output, found)], ExitCode.USAGE, output)
    [(subject, document)] = found
    if subject.id(document) != text:
        output.note(f"{subject.title} {subject.id(document)}: {_about(subject, document)}")
    return subject, subject.id(document)


def _uuid(text: str) -> str | None:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def _can_begin(text: str, subject: Subject, least: int) -> bool:
    if not subject.uuids:
        return is_print_job_id(text)
    return len(text) >= least and _BEGINNING.fullmatch(text) is not None


def _candidates(output: Output, found: Sequence[Found]) -> Iterator[str]:
    rows = [
        (Id(subject.id(document)), TimeCell(document["created_at"]), *_fields(subject, document))
        for subject, document in found[:LISTED]
    ]
    columns = ("id", "created", "terminal", "what", "state")
    # In a pipe no line is broken.
    room = output.stderr.width - 2 if output.stderr.is_terminal else 1000
    table = laid_out(columns, rows, room, Layout(whole="id", under="terminal", cut="terminal"))
    for line in (*table.head, *table.body):
        yield f"  {line}"
    if len(found) > LISTED:
        yield "  and more"


def _fields(subject: Subject, document: Document) -> tuple[str, str, str]:
    what = "  ".join(filter(None, (cell(document) for cell in subject.columns.values())))
    return document["terminal"] or "-", what or "-", subject.state(document)


def _about(subject: Subject, document: Document) -> str:
    return "  ".join((moment(document["created_at"], date=True), *_fields(subject, document)))
