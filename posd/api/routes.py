"""Table of the local API: calls, parameters, and responses.

Each row is served, and the description of the API is generated from it. `api.openapi` resolves a type that is given as
a string.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from posd.api import documents, report_calls
from posd.api.documents import DaemonStatus
from posd.api.maintenance import BackupRequest, ClockRequest, ClockState, PruneRequest
from posd.api.terminals import CommissionRequest, IdentityDecision, Probe
from posd.base.exposition import CONTENT_TYPE
from posd.calls import parameters as at
from posd.calls.parameters import AnswerSpec, Parameter, Route, StreamMessage
from posd.calls.streams import ENDS, Notice
from posd.payments import handlers as transactions
from posd.printing import handlers as print_jobs
from posd.records.request import Signed
from posd.storage.backup import Rotated, Written
from posd.terminals.documents import Terminal
from posd.upkeep.retention import Report

# Calls for operators only: quarantine, reprocessing, backup, restore, prune. `ALL` marks them as admin calls.

STORED = ("storage_unavailable",)
#: Parameter of the calls that show terminals.
CHECK_FIRST = Parameter("check", at.FLAG, "`true`: first check terminals that were not checked recently", default=False)
#: Media type of a response that is the backup itself.
OCTETS = "application/octet-stream"

_OPERATOR_ROUTES = (
    Route(
        "GET",
        "/v1/quarantine",
        "list_quarantine",
        "List the quarantine: bodies of callbacks with a valid token that posd could not use, with the reasons.",
        {200: AnswerSpec("a page", documents.Quarantine)},
        STORED,
        query=(at.AFTER, at.LIMIT),
    ),
    Route(
        "GET",
        "/v1/quarantine/{id}",
        "get_quarantined",
        "Show one body of the quarantine.",
        {200: AnswerSpec("the body and the reason", documents.QuarantinedBody)},
        ("not_found", *STORED),
    ),
    Route(
        "POST",
        "/v1/reprocess",
        "reprocess",
        "Apply the usable bodies of the quarantine, and derive all records again from the stored messages. No body.",
        {200: AnswerSpec("what was done", documents.Reprocessed)},
        STORED,
    ),
    Route(
        "POST",
        "/v1/backup",
        "back_up",
        "Copy the database, with the callback key, while payments continue: to a file, into a directory "
        "that keeps the newest copies, or into the response.",
        {200: AnswerSpec("the written file; with `send` the backup itself", Rotated | Written, also=OCTETS)},
        ("malformed_json", *STORED, "draining"),
        body=BackupRequest,
    ),
    Route(
        "GET",
        "/v1/restore",
        "get_restore",
        "Show what no operator has confirmed yet: restores, and times at which posd found an older database.",
        {200: AnswerSpec("what no operator has confirmed", documents.Restores)},
        STORED,
    ),
    Route(
        "POST",
        "/v1/restore/seen",
        "confirm_restore",
        "Confirm that an operator has checked the effects of a restore; the check `restore` is ok again.",
        {200: AnswerSpec("the restores", documents.RestoresSeen)},
        ("malformed_json", "not_found", *STORED),
        body=Signed,
    ),
    Route(
        "GET",
        "/v1/prune",
        "get_prune",
        "Show for how many days records are kept, and the state of their removal.",
        {200: AnswerSpec("the progress", documents.PruneProgress)},
    ),
    Route(
        "POST",
        "/v1/prune",
        "prune",
        "Remove records that ended more than some days ago, while payments continue.",
        {200: AnswerSpec("what was removed, or would be", Report)},
        ("malformed_json", *STORED, "clock_unsure", "draining"),
        body=PruneRequest,
        body_required=False,
    ),
    Route(
        "GET",
        "/v1/status",
        "get_status",
        "Show the state of posd, its machine and its terminals, and what is open: everything in `posd status`.",
        {200: AnswerSpec("the status, also if something is wrong", DaemonStatus)},
        query=(CHECK_FIRST,),
    ),
    Route(
        "GET",
        "/v1/clock",
        "get_clock",
        "Show the evidence for and against the clock of this machine, and the work that waits for it.",
        {200: AnswerSpec("the evidence", ClockState)},
        STORED,
    ),
    Route(
        "POST",
        "/v1/clock/confirm",
        "confirm_clock",
        "Confirm that the clock of this machine is right, after an operator has compared it with another one.",
        {200: AnswerSpec("the evidence after the call", ClockState)},
        ("malformed_json", *STORED),
        body=ClockRequest,
    ),
    Route(
        "POST",
        "/v1/shifts",
        "close_shift",
        "Close a shift: posd counts the payments since the last close, and keeps the sums.",
        {
            201: AnswerSpec("the shift", "Shift"),
            200: AnswerSpec(
                "the last shift; this call closed none: there was no payment since then, or `after` is not its `up_to`",
                "Shift",
            ),
        },
        ("malformed_json", *STORED),
        body="ShiftRequest",
    ),
)


# Calls on terminals, the feed, and the daemon itself.

FEED = (
    StreamMessage("KIND", documents.Change, "one change; the event name is its kind, and the id its place"),
    StreamMessage("notice", Notice, "why changes may be missing; this message has no id"),
    *ENDS,
)

SERVICE_ROUTES = (
    Route(
        "GET",
        "/v1/terminals",
        "list_terminals",
        "List the terminals of the fleet: the address of each, and why it cannot be reached.",
        {200: AnswerSpec("the terminals", documents.Terminals)},
        STORED,
        query=(
            Parameter("all", at.FLAG, "`true`: announced terminals outside the fleet too", default=False),
            CHECK_FIRST,
        ),
    ),
    Route(
        "GET",
        "/v1/terminals/{serial}",
        "get_terminal",
        "Show a terminal.",
        {200: AnswerSpec("the terminal", Terminal)},
        ("not_found", *STORED),
    ),
    Route(
        "POST",
        "/v1/terminals/{serial}/identity",
        "decide_identity",
        "Record which device is a terminal, by an operator's decision; posd calls that device from then on.",
        {200: AnswerSpec("the terminal", Terminal)},
        ("malformed_json", "not_found", *STORED),
        body=IdentityDecision,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/terminals/{serial}/commission",
        "commission_terminal",
        "Record which parts of a terminal work under its present profile; this replaces the earlier record.",
        {200: AnswerSpec("the terminal", Terminal)},
        ("malformed_json", "not_found", *STORED),
        body=CommissionRequest,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/terminals/{serial}/probe",
        "probe_terminal",
        "Search a terminal for a payment that never existed: if the search works, it finds none. No body.",
        {200: AnswerSpec("the result", Probe)},
        ("not_found", *STORED),
        admin=True,
    ),
    Route(
        "GET",
        "/v1/feed",
        "read_feed",
        "Read every recorded change of every payment and print job, ascending; or follow them live.",
        {200: AnswerSpec("a page", documents.FeedPage, stream=FEED)},
        (*STORED, "draining", "forbidden"),
        query=(at.FEED_AFTER, at.LIMIT, at.FEED_WITH),
        headers=(at.LAST_FEED_ID,),
        feed=True,
    ),
    Route(
        "GET",
        "/v1/report",
        "get_report",
        "Total the payments of a period or of a shift by currency, and list them.",
        {200: AnswerSpec("the report", "PaymentReport")},
        ("not_found", *STORED),
        query=(
            report_calls.SINCE,
            report_calls.UNTIL,
            report_calls.SHIFT,
            report_calls.TERMINAL,
            report_calls.TIMEZONE,
            report_calls.MEMBER,
        ),
    ),
    Route(
        "GET",
        "/v1/shifts",
        "list_shifts",
        "List the closed shifts, the newest first, each with its counts.",
        {200: AnswerSpec("a page", "Shifts")},
        STORED,
        query=(report_calls.BEFORE, report_calls.LIMIT),
    ),
    Route(
        "GET",
        "/v1/health",
        "get_health",
        "Show whether posd is healthy, and each check.",
        {
            200: AnswerSpec("`ok` or `degraded`: every part works", documents.Health),
            503: AnswerSpec("`failing`", documents.Health),
        },
        feed=True,
    ),
    Route(
        "GET",
        "/v1/version",
        "get_version",
        "Show the versions of posd, of this API and of the database.",
        {200: AnswerSpec("the versions", documents.Version)},
        feed=True,
    ),
    Route(
        "GET",
        "/v1/openapi.json",
        "get_openapi",
        "Return this description of the API.",
        {200: AnswerSpec("an OpenAPI 3.1 document", dict[str, object])},
    ),
    Route(
        "GET",
        "/metrics",
        "get_metrics",
        "Show the metrics, in Prometheus' text format.",
        {200: AnswerSpec("the metrics", str, media=CONTENT_TYPE)},
    ),
)


ALL: tuple[Route, ...] = (
    *transactions.ROUTES,
    *print_jobs.ROUTES,
    *SERVICE_ROUTES,
    *(replace(route, admin=True) for route in _OPERATOR_ROUTES),
)


def by_path(routes: Iterable[Route]) -> dict[str, list[Route]]:
    """Return the routes of each path."""
    found: dict[str, list[Route]] = {}
    for route in routes:
        found.setdefault(route.path, []).append(route)
    return found
