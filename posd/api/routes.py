"""The local API as one table: calls, parameters, and responses.

Each row is served, and the description of the API is made from it. A type as text is loaded by the first call
(`api.openapi`).
"""

from collections.abc import Iterable

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

# Calls for operators only: quarantine, reprocessing, backup, restore, prune.

STORED = ("storage_unavailable",)
#: Parameter of the calls that show terminals.
CHECK_FIRST = Parameter("check", at.FLAG, "`true`: look at those first that were not looked at just now", default=False)
#: Media type of the response to `send`.
OCTETS = "application/octet-stream"

OPERATOR_ROUTES = (
    Route(
        "GET",
        "/v1/quarantine",
        "list_quarantine",
        "List what was refused though its callback address was authentic, with its bytes and the reason.",
        {200: AnswerSpec("a page", documents.Quarantine)},
        STORED,
        query=(at.AFTER, at.LIMIT),
        admin=True,
    ),
    Route(
        "GET",
        "/v1/quarantine/{id}",
        "get_quarantined",
        "Show one of them.",
        {200: AnswerSpec("the body and the reason", documents.QuarantinedBody)},
        ("not_found", *STORED),
        admin=True,
    ),
    Route(
        "POST",
        "/v1/reprocess",
        "reprocess",
        "Apply what can be applied of the quarantine, and derive everything again from the record. No body.",
        {200: AnswerSpec("what was done", documents.Reprocessed)},
        STORED,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/backup",
        "back_up",
        "Copy the database, with the callback keys, while payments go on: to a file, into a directory that keeps the "
        "newest, or into the answer.",
        {200: AnswerSpec("what was written; of `send` the backup itself", Rotated | Written, also=OCTETS)},
        ("malformed_json", *STORED, "draining"),
        body=BackupRequest,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/restore",
        "get_restore",
        "Show what happened to the database and no person has looked at, with the payments in question.",
        {200: AnswerSpec("what no person has looked at", documents.Restores)},
        STORED,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/restore/seen",
        "confirm_restore",
        "Say that a person has looked at what a restore left behind; health is ok again.",
        {200: AnswerSpec("the restores", documents.RestoresSeen)},
        ("malformed_json", "not_found", *STORED),
        body=Signed,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/prune",
        "get_prune",
        "Say for how many days records are kept, and what their removal is doing.",
        {200: AnswerSpec("the progress", documents.PruneProgress)},
        admin=True,
    ),
    Route(
        "POST",
        "/v1/prune",
        "prune",
        "Remove what ended longer ago than the days; payments go on meanwhile.",
        {200: AnswerSpec("what was removed, or would be", Report)},
        ("malformed_json", *STORED, "clock_unsure", "draining"),
        body=PruneRequest,
        body_required=False,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/status",
        "get_status",
        "Show how posd, its machine and its terminals are, and what is open: all that `posd status` shows.",
        {200: AnswerSpec("the status, also when something is wrong", DaemonStatus)},
        query=(CHECK_FIRST,),
        admin=True,
    ),
    Route(
        "GET",
        "/v1/clock",
        "get_clock",
        "Show what speaks for the clock of this machine and against it, and what waits for it.",
        {200: AnswerSpec("the witnesses", ClockState)},
        STORED,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/clock/confirm",
        "confirm_clock",
        "Say that a person has compared the clock of this machine, and that it is right now.",
        {200: AnswerSpec("the witnesses after it", ClockState)},
        ("malformed_json", *STORED),
        body=ClockRequest,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/shifts",
        "close_shift",
        "Close a shift: posd counts the payments since the last one, and keeps the sums.",
        {
            201: AnswerSpec("the shift", "Shift"),
            200: AnswerSpec(
                "the last shift; none was closed: nothing was paid since then, or it is not the one that `after` names",
                "Shift",
            ),
        },
        ("malformed_json", *STORED),
        body="ShiftRequest",
        admin=True,
    ),
)


# Calls on terminals, the feed, and the daemon itself.

FEED = (
    StreamMessage("KIND", documents.Change, "one change; it is called by its kind, and its id is its place"),
    StreamMessage("notice", Notice, "why the reader may have missed something; without an id"),
    *ENDS,
)

SERVICE_ROUTES = (
    Route(
        "GET",
        "/v1/terminals",
        "list_terminals",
        "List the terminals of the fleet: where each is, and why it cannot be reached.",
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
        "Say which of the devices that claim to be a terminal it is; posd calls it there from then on.",
        {200: AnswerSpec("the terminal", Terminal)},
        ("malformed_json", "not_found", *STORED),
        body=IdentityDecision,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/terminals/{serial}/commission",
        "commission_terminal",
        "Record what was seen working with a terminal, by the profile that it has now; it replaces what was recorded.",
        {200: AnswerSpec("the terminal", Terminal)},
        ("malformed_json", "not_found", *STORED),
        body=CommissionRequest,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/terminals/{serial}/probe",
        "probe_terminal",
        "Search a terminal for a payment that never was: a search that works says that there is none. No body.",
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
        "Add up the payments of a span of time, or of a shift, by currency, and list them.",
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
        "List the shifts that were closed, the newest first, with what each has counted.",
        {200: AnswerSpec("a page", "Shifts")},
        STORED,
        query=(report_calls.BEFORE, report_calls.LIMIT),
    ),
    Route(
        "GET",
        "/v1/health",
        "get_health",
        "Say whether posd is well, each check in words.",
        {
            200: AnswerSpec("`ok` or `degraded`: payments can be made", documents.Health),
            503: AnswerSpec("`failing`", documents.Health),
        },
        feed=True,
    ),
    Route(
        "GET",
        "/v1/version",
        "get_version",
        "Say what runs here.",
        {200: AnswerSpec("the versions", documents.Version)},
        feed=True,
    ),
    Route(
        "GET",
        "/v1/openapi.json",
        "get_openapi",
        "Describe this API: this document.",
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
    *OPERATOR_ROUTES,
)


def by_path(routes: Iterable[Route]) -> dict[str, list[Route]]:
    """Return the routes of each path."""
    found: dict[str, list[Route]] = {}
    for route in routes:
        found.setdefault(route.path, []).append(route)
    return found
