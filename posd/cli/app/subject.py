"""Common code of the commands on payments and on print jobs: start, wait, list. A `Subject` has the differences."""

import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from types import TracebackType
from typing import Any, NoReturn, Self, TypeAlias, TypeVar

import click
from rich.console import RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from posd.base.ids import ID_RULE, is_print_job_id
from posd.base.text import Language, shown
from posd.base.times import iso
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import Api, ForeignAnswer, Problem, Reply, Unreachable, connect, merchant_zone
from posd.cli.app.context import ExitCode, context, for_pruned
from posd.cli.app.errors import Failure, fail
from posd.cli.app.outcome import CurrentState, TimedOut, Update, start
from posd.cli.app.output import Output, Pair, money
from posd.cli.app.parameters import whole_uuid
from posd.cli.app.tables import SHORT_ID, Cells, Id, Layout, Lines, Number
from posd.cli.app.times import TimeCell, in_utc, in_words, moment
from posd.cli.explain.catalogue import Advice, chosen, explained, named, say, translate, use
from posd.cli.payments.words import explained_by, is_known, refused_step

Document: TypeAlias = Mapping[str, Any]

#: Phases in which posd cannot tell whether the terminal accepted the request.
DOUBTFUL = frozenset({"starting", "in_doubt"})
MORE = "there are more: --all shows them, --limit more of them"

#: If many payments have the same attention, its commands are written for this number of them. The commands for the
#: other payments differ only in the id.
COMMANDS_FOR = 5

#: Sums in the totals of a list, by their names in the API.
SUMS = ("amount", "tips", "authorized_amount")

#: Redraws per second: enough for an animation and a counter of seconds.
REDRAWS_PER_SECOND = 8


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Texts and calls for one kind of document of the local API: payments or print jobs.

    [subject] of the catalogue has its texts.
    """

    #: Name of the list in the API, and the command that shows the list.
    plural: str
    list: str
    #: Whether ids are UUIDs; otherwise the till chooses ids freely.
    uuids: bool
    #: Name of the id's field in a document.
    key: str
    #: Name of the kind: in sentences, and as a label before an id.
    word: str
    title: str
    noun: Callable[[Document], str]
    #: Functions that return the state of a document in a few words, and its present step.
    state: Callable[[Document], str]
    hint: Callable[[Document], str]
    #: Function that returns the advice on one attention, from its code and the document.
    advice: Callable[[str, Document], Advice]
    #: Function that returns the fields to show before a decision about a document.
    summary: Callable[[Document], Sequence[Pair]]
    #: Columns of the list in addition to the common ones: name -> function that returns the text of a cell.
    columns: Mapping[str, Callable[[Document], str]]
    #: Further columns on a wide screen, but not in a pipe.
    extra: Mapping[str, Callable[[Document], str]]
    show_end: Callable[[Output, Document], None]
    exit_code: Callable[[Document], ExitCode]
    #: Function that yields updates until the payment or print job is final, or the deadline passes.
    follow: Callable[[Api, Reply, float | None], Iterator[Update]]
    progress: "Callable[[Output, Document], Progress]"

    def id(self, document: Document) -> str:
        """Return the id in a document."""
        return str(document[self.key])

    @property
    def path_name(self) -> str:
        """Name of the list in the paths of the API."""
        return self.plural.replace("_", "-")

    def path(self, identity: object) -> str:
        """Return the path of a document in the API, from its id."""
        return f"/{self.path_name}/{identity}"

    def say(self, name: str, document: Document, **more: str) -> str:
        """Return the text `name` of the catalogue, with {id}, {noun} and `more` filled in."""
        template: str = chosen("subject")[self.word.replace(" ", "_")][name]
        return template.format(id=self.id(document), noun=self.noun(document), **more)


class Progress(ABC):
    """Writer of the updates of one payment or print job until its end. `document`: its state at the beginning.

    On a terminal the last line shows the present step and its time. With --json only an unreachable daemon is reported,
    on stderr.
    """

    def __init__(self, output: Output, subject: Subject, document: Document) -> None:
        self.subject = subject
        self.output = output
        #: Text that is shown while posd is unreachable.
        self.while_away = subject.say("may_have_started", document)
        self._started = time.monotonic()
        self._now = Text(named("starting"))
        self._away = False
        self._attention: set[str] = set()
        self._spinner = Spinner("line" if output.stdout.options.ascii_only else "dots")
        self._live = Live(
            console=output.stdout, get_renderable=self._render, refresh_per_second=REDRAWS_PER_SECOND, transient=True
        )

    @abstractmethod
    def show(self, update: Update) -> None:
        """Write the text of one update."""

    def show_open(self, document: Document) -> None:
        """Show the present step, and write new attentions."""
        self.now(self.subject.hint(document))
        news = [attention for attention in document["attention"] if attention["code"] not in self._attention]
        self._attention |= {attention["code"] for attention in news}
        show_attention(self.output, self.subject, {**document, "attention": news})

    def __enter__(self) -> Self:
        if self.output.rich:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live line, so that other text can follow."""
        self._live.stop()

    def now(self, text: str) -> None:
        """Show the present step in the live line."""
        self._now = Text(shown(text))

    def away(self, reason: str) -> None:
        """Show that the daemon is unreachable, and print that once."""
        words = say("progress", "away", state=self.while_away)
        self._now = Text(shown(words), style="yellow")
        if not self._away:
            self._away = True
            self._tell(f"{words}: {translate(reason)}", "yellow")

    def back(self) -> None:
        """Print that the daemon replies again, if it was unreachable."""
        if self._away:
            self._away = False
            self._tell(say("progress", "back"), "green")

    def _tell(self, text: str, style: str) -> None:
        if self.output.as_json:
            self.output.note(text)
        else:
            self.output.line(text, style)

    def _render(self) -> RenderableType:
        elapsed = f" {time.monotonic() - self._started:3.0f} s  "
        self._spinner.update(text=Text.assemble(elapsed, self._now))
        return self._spinner


def show_attention(output: Output, subject: Subject, document: Document) -> None:
    """Write the attentions of a document, with their details and advice."""
    advised = [(item, subject.advice(item["code"], document)) for item in document["attention"]]
    for attention, advice in advised:
        detail = explained("attention", attention["code"], attention.get("detail") or "")
        mark = say("payment", "attention", code=attention["code"])
        output.line(f"{mark}: {in_words(detail)}" if detail else mark, "yellow")
        show_advice(output, advice, [subject.id(document)])
    _show_explained(output, [(attention["code"], advice) for attention, advice in advised])


def show_missing_proof(output: Output, document: Document) -> None:
    """Write what is missing to prove that a payment in doubt never started."""
    for lack in document.get("missing_proof", ()):
        output.line(say("payment", "missing_proof", code=lack["code"]), "yellow")
        said = explained("proof", lack["code"], "") or str(lack["detail"])  # the catalogue has SERIAL for the terminal
        output.line(said.replace("SERIAL", str(document["terminal"])), indent=2)


def show_what_to_do(output: Output, marks: Iterable[tuple[str, Advice, str]]) -> None:
    """Write the advice and commands of attentions. Attentions with the same code and advice are written together.

    `marks`: code and advice of each attention, and the id of its payment or print job.
    """
    concerned: dict[tuple[str, Advice], list[str]] = {}
    for code, advice, identity in marks:
        concerned.setdefault((code, advice), []).append(identity)
    for (code, advice), ids in concerned.items():
        output.line()
        output.verbatim(code, style="yellow")
        show_advice(output, advice, ids[:COMMANDS_FOR])
        if len(ids) > COMMANDS_FOR:
            output.line(say("payment", "and_so", more=len(ids) - COMMANDS_FOR), indent=4)
    if concerned:
        output.line()
        _show_explained(output, concerned)


def _show_explained(output: Output, advised: Iterable[tuple[str, Advice]]) -> None:
    """Write the command that explains attentions, for the codes that this version knows."""
    known = [code for code, advice in advised if is_known(advice)]
    if known:
        output.line(explained_by(known), "dim", indent=2)


def show_advice(output: Output, advice: Advice, ids: Sequence[str]) -> None:
    """Write advice, and its commands for each id."""
    output.line(advice.words, indent=2)
    for command in dict.fromkeys(command.format(id=each) for each in ids for command in advice.commands):
        output.line(command, indent=4)


# Lists of payments and print jobs, newest first.

Command = TypeVar("Command", bound=Callable[..., Any])


def list_options(command: Command) -> Command:
    """Add the options of every list. The command receives the filters by their names in the API, and `everything`."""
    for option in (
        click.option(
            "--all", "everything", is_flag=True, help="All of them, not only the newest (--json: one page per line)."
        ),
        click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Rows at a time."),
        click.option("--attention", is_flag=True, help="Only those that an operator should check."),
        click.option("--terminal", metavar="SERIAL", shell_complete=serials, help="Only this terminal."),
        click.option("--open", is_flag=True, help="Only those that are not final."),
    ):
        command = option(command)
    return command


def show_list(
    ctx: click.Context, output: Output, subject: Subject, filters: Mapping[str, object], *, everything: bool
) -> None:
    """Read and write one page of the list, or with `everything` all pages.

    With the filter `totals`, also write the totals. With `attention`, also write the advice on attentions. Filters that
    are None or False are not sent.
    """
    if not output.rich:  # for programs
        use(Language.EN)
    given = {name: filters[name] for name in ("limit", *filters) if filters[name] not in (None, False)}
    with connect(ctx) as api:
        params = {name: _as_parameter(api, value) for name, value in given.items()}
        documents, totals, more = _read_pages(api, output, subject, params, everything=everything)
    if documents or not output.rich:
        extra = subject.extra if output.rich else {}
        output.table(
            ("created", subject.title, "terminal", *subject.columns, "state", *extra),
            (_list_row(subject, document, extra) for document in documents),
            Layout(whole=subject.title, under="terminal", cut="terminal", extra=tuple(extra)),
        )
    else:
        output.line(f"No {subject.word}s.")
    if "totals" in params:
        output.line()
        output.table(("type", "of", "result", "currency", f"{subject.word}s", *SUMS), map(_totals_row, totals))
    if "attention" in params:
        show_what_to_do(
            output,
            (
                (item["code"], subject.advice(item["code"], document), subject.id(document))
                for document in documents
                for item in document["attention"]
            ),
        )
    if more:
        output.note(MORE)


def _as_parameter(api: Api, value: object) -> str:
    """Return a filter in the API's format. A day becomes the time when it begins in the merchant's time zone."""
    if isinstance(value, date):
        return iso(datetime.combine(value, time_of_day.min, UTC if in_utc() else merchant_zone(api)))
    return "true" if value is True else str(value)


def _read_pages(
    api: Api, output: Output, subject: Subject, params: Mapping[str, str], *, everything: bool
) -> tuple[list[Document], list[Document], bool]:
    """Return one page of the list (with `everything` all), the totals, and whether there are more pages.

    With --json each page is written as it arrives.
    """
    documents: list[Document] = []
    totals: list[Document] = []
    page = dict(params)
    while True:
        reply = api.get(f"/{subject.path_name}", page)
        output.json(reply.raw)
        documents += reply.body[subject.plural]
        totals += reply.body.get("totals", ())
        cursor = reply.body["next_cursor"]
        if cursor is None or not everything:
            return documents, totals, cursor is not None
        page["cursor"] = cursor
        page.pop("totals", None)  # the totals of the first page cover all pages


def _list_row(subject: Subject, document: Document, extra: Mapping[str, Callable[[Document], str]]) -> Cells:
    """Return a row of the list, with attentions after the state."""
    marks = " ".join(f"!{attention['code']}" for attention in document["attention"])
    return (
        TimeCell(document["created_at"]),
        Id(subject.id(document)),
        document["terminal"] or "-",
        *(cell(document) or "-" for cell in subject.columns.values()),
        f"{subject.state(document)} {marks}".strip(),
        *(cell(document) or "-" for cell in extra.values()),
    )


def _totals_row(totals: Document) -> Cells:
    sums = (Number(money(totals[name])) for name in SUMS)
    words = (totals["type"] or "-", totals["of"] or "-", totals["result"] or "open", totals["currency"] or "-")
    return *words, Number(totals["count"]), *sums


# Start, and wait until the outcome, the deadline or Ctrl-C.

terminal_option = click.option(
    "--terminal", metavar="SERIAL", shell_complete=serials, help="The terminal; optional if there is only one."
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time (exit code 4); nothing else stops.",
)


def deadline_in(timeout: float | None) -> float | None:
    """Return the time of `time.monotonic()` after `timeout` seconds, or None without a time-out."""
    return None if timeout is None else time.monotonic() + timeout


def run(
    ctx: click.Context,
    output: Output,
    subject: Subject,
    draft: Document,
    request: Mapping[str, Any],
    *,
    deadline: float | None,
    no_wait: bool,
    fresh: bool,
) -> NoReturn:
    """Start a payment or print job, and wait for its end unless `no_wait`. Exit with the code of its state.

    `draft`: document with the fields that are known before the call. `fresh`: whether the id was made for this call.
    """
    context(ctx).set_starts()
    with connect(ctx) as api, subject.progress(output, draft) as progress:
        # Printed before the call, so that the id is on the screen if the call fails.
        write = output.note if output.as_json else output.line
        title = named(subject.title) if output.rich else subject.title  # in English for programs
        write(f"{title} {subject.id(draft)}")
        reply = _begin(api, progress, draft, request, deadline, fresh=fresh)
        if reply.body["phase"] != "final" and not no_wait:
            reply = _wait(api, progress, reply, deadline)
    if reply.body["phase"] in DOUBTFUL:
        _leave_open(progress, reply.body, subject.say("in_doubt", draft), reply)
    if reply.body["phase"] == "final":
        _finish(output, subject, reply)
    output.json(reply.raw)
    terminal, hint = shown(str(reply.body["terminal"])), shown(subject.hint(reply.body))
    for line in subject.say("started", reply.body, terminal=terminal, hint=hint).split("\n"):
        output.line(line)
    sys.exit(ExitCode.DONE)


def await_end(
    ctx: click.Context, output: Output, subject: Subject, draft: Document, deadline: float | None
) -> NoReturn:
    """Wait for the end of a payment or print job. Exit with the code of that end."""
    context(ctx).set_starts()
    with connect(ctx) as api:
        reply = _look(api, subject.progress(output, draft), draft)
        if reply.body["phase"] != "final":
            with subject.progress(output, reply.body) as progress:
                reply = _wait(api, progress, reply, deadline)
    _finish(output, subject, reply)


def _begin(
    api: Api, progress: Progress, draft: Document, request: Mapping[str, Any], deadline: float | None, *, fresh: bool
) -> Reply:
    """Start the payment or print job, and return the daemon's response.

    If this call started nothing, raise Problem or Unreachable. If it may have started something, exit with OPEN.
    """
    subject = progress.subject
    maybe = subject.say("may_run", draft)
    try:
        return start(api, subject.path(subject.id(draft)), request, deadline=deadline, away=progress.away, fresh=fresh)
    except (TimedOut, KeyboardInterrupt):
        _leave_open(progress, draft, maybe)
    except ForeignAnswer as answer:
        _leave_open(progress, draft, (f"posd: {answer.reason}", maybe))
    except Unreachable:
        _tell_refused(progress, draft, never_started=fresh, step="same_call")
        raise
    except Problem as problem:
        if problem.sent:
            _leave_open(progress, draft, (f"posd: {problem.detail}", maybe))
        _tell_refused(progress, draft, never_started=problem.never_started, step=problem.next_step)
        raise


def _tell_refused(progress: Progress, draft: Document, *, never_started: bool, step: str) -> None:
    """Print whether a call before the refused one may have started the payment or print job, and what to do."""
    subject = progress.subject
    progress.close()
    lines = [subject.say("never_started" if never_started else "started_before", draft)]
    progress.output.note(lines if never_started else [*lines, refused_step(step)], style="yellow")


def _look(api: Api, progress: Progress, draft: Document) -> Reply:
    """Return the state before a wait. If posd is reachable but cannot tell the state, exit with OPEN.

    Raise Problem if the payment or print job was never started, and Unreachable if posd cannot be reached. If retention
    removed the record, raise Failure with the exit code of the recorded end.
    """
    subject = progress.subject
    try:
        return api.get(subject.path(subject.id(draft)))
    except ForeignAnswer as answer:
        _leave_open(progress, draft, _not_known(answer))
    except Problem as problem:
        if problem.code == "pruned":
            raise Failure(problem.detail, for_pruned(problem.extra), progress.output, problem.raw) from problem
        if problem.never_started or problem.away:
            raise
        progress.output.json(problem.raw)
        _leave_open(progress, draft, _not_known(problem))


def _not_known(error: Problem | Unreachable) -> Sequence[str]:
    reason = translate(error.reason) if isinstance(error, Unreachable) else error.detail
    return f"posd: {reason}", say("progress", "not_known")


def _wait(api: Api, progress: Progress, reply: Reply, deadline: float | None) -> Reply:
    """Follow the payment or print job until it is final.

    Exit with OPEN at the deadline, at Ctrl-C, or if posd keeps failing.
    """
    progress.while_away = goes_on = progress.subject.say("goes_on", reply.body)
    try:
        for update in progress.subject.follow(api, reply, deadline):
            progress.show(update)
            if isinstance(update, CurrentState):
                reply = update.reply
    except TimedOut:
        _leave_open(progress, reply.body, say("progress", "open", state=goes_on), reply)
    except KeyboardInterrupt:
        _leave_open(progress, reply.body, say("progress", "stopped", state=goes_on), reply)
    except (Problem, Unreachable) as error:
        _leave_open(progress, reply.body, _not_known(error), reply)
    return reply


def _leave_open(progress: Progress, document: Document, why: Lines, reply: Reply | None = None) -> NoReturn:
    """Print why the payment or print job stays open, and what to do. Then exit with OPEN.

    `reply`: JSON for --json.
    """
    progress.close()
    output = progress.output
    if reply is not None:
        output.json(reply.raw)
    *before, last = (why,) if isinstance(why, str) else why
    how_to_go_on = progress.subject.say("left_open", document).split("\n")
    output.note([*before, f"{last}.", *how_to_go_on], style="yellow")
    show_missing_proof(output, document)
    sys.exit(ExitCode.OPEN)


def _finish(output: Output, subject: Subject, reply: Reply) -> NoReturn:
    """Write the end of the payment or print job. Exit with the code of that end."""
    if output.as_json:
        output.json(reply.raw)
    else:
        subject.show_end(output, reply.body)
        show_attention(output, subject, reply.body)
    sys.exit(subject.exit_code(reply.body))


# Search for the payment or print job of a typed id, which may be only the first characters.

#: Minimum number of typed characters of a UUID.
LEAST = 4
#: Minimum for commands that move money, so that a typing error does not find another payment.
LEAST_FOR_MONEY = SHORT_ID
#: Maximum number of ids that are listed if several begin with the typed characters.
LISTED = 10

_BEGINNING = re.compile("[0-9A-Fa-f-]{,36}", re.ASCII)

#: A payment or print job that was found.
Found = tuple[Subject, Document]


def find(ctx: click.Context, output: Output, text: str, *subjects: Subject, least: int = LEAST) -> tuple[Subject, str]:
    """Return the subject of a typed id (payments or print jobs), and the whole id.

    A whole UUID is an id of the first subject, unless posd knows it only as an id of another one. If `text` is the
    beginning of an id, stderr shows the whole id. Raise Failure with USAGE if several ids begin with it, and with
    NOT_DONE if none does. Raise BadParameter for an invalid id, Problem or Unreachable.
    """
    if (whole := whole_uuid(text)) is not None:
        first, *others = ((subject, whole if subject.uuids else text) for subject in subjects)
        if not others:
            return first
        with suppress(Unreachable), connect(ctx) as api:  # the command's own call says that posd is unreachable
            return next((each for each in others if _knows(api, *each) and not _knows(api, *first)), first)
        return first
    asked = [subject for subject in subjects if _can_begin(text, subject, least)]
    if not asked:
        name = "no_payment" if subjects[0].uuids else "no_print_job"
        raise click.BadParameter(say("find_id", name, text=text, least=least, rule=translate(ID_RULE)), param_hint="ID")
    found: list[Found] = []
    with connect(ctx) as api:
        for subject in asked:
            reply = api.get(f"/{subject.path_name}", {"id": text, "limit": str(LISTED + 1)})
            documents = reply.body[subject.plural]
            alike = [document for document in documents if subject.id(document).lower() == text.lower()]
            exact = [document for document in alike if subject.id(document) == text] or alike
            found += [(subject, document) for document in exact or documents]
    if not found:
        if len(subjects) == 1 and not asked[0].uuids:
            return asked[0], text  # it may be a whole id: the command's own call will fail if it does not exist
        word = f" {named('or')} ".join(named(subject.word) for subject in subjects)
        fail(output, say("find_id", "none", word=word, text=text, see=asked[0].list))
    if len(found) > 1:
        raise Failure([say("find_id", "several", text=text), *_candidates(found)], ExitCode.USAGE, output)
    [(subject, document)] = found
    if subject.id(document) != text:
        output.note(f"{named(subject.title)} {subject.id(document)}: {_about(subject, document)}")
    return subject, subject.id(document)


def _knows(api: Api, subject: Subject, identity: str) -> bool:
    try:
        return bool(api.get(subject.path(identity)).body)
    except Problem as problem:
        return problem.status != 404


def _can_begin(text: str, subject: Subject, least: int) -> bool:
    if not subject.uuids:
        return is_print_job_id(text)
    return len(text) >= least and _BEGINNING.fullmatch(text) is not None


def _candidates(found: Sequence[Found]) -> Iterator[str]:
    for subject, document in found[:LISTED]:
        yield f"  {subject.id(document)}  {_about(subject, document)}"
    if len(found) > LISTED:
        yield translate("  and more")


def _about(subject: Subject, document: Document) -> str:
    columns = (cell(document) for cell in subject.columns.values())
    at, terminal = moment(document["created_at"], date=True), document["terminal"] or "-"
    return "  ".join(filter(None, (at, terminal, *columns, subject.state(document))))
