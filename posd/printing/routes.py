"""Calls on print jobs."""

from posd.calls import parameters as at
from posd.calls.route import Answer, Route
from posd.printing.documents import PrintHistory, PrintJob, PrintJobPage
from posd.printing.request import PrintAcknowledgement, PrintRequest, PrintResolution

ONE = "/v1/print-jobs/{print_job_id}"

#: Codes of what looks for one print job.
KNOWN = ("not_found", "pruned", "storage_unavailable")
#: Codes of what starts one.
STARTS = (
    "malformed_json",
    "unknown_terminal",
    "terminal_offline",
    "id_reused",
    "unknown_original",
    "queue_full",
    "pruned",
    "storage_unavailable",
    "draining",
)

_NOW = Answer("the print job as it then stands", PrintJob)

ROUTES = (
    Route(
        "PUT",
        ONE,
        "start_print_job",
        "Print a document, once. Repeat the call as often as you like with the same id and body: it is sent once.",
        {201: Answer("started now", PrintJob), 200: Answer("was known already, by the same request", PrintJob)},
        STARTS,
        body=PrintRequest,
        judges_refusal=True,
    ),
    Route("GET", ONE, "get_print_job", "Show a print job.", {200: Answer("the print job", PrintJob)}, KNOWN),
    Route(
        "GET",
        f"{ONE}/outcome",
        "await_print_job",
        "Wait for its end. It is held until then, over everything but a restart of posd: then ask again.",
        {200: Answer("the print job, final", PrintJob), 202: Answer("`timeout` passed: still open", PrintJob)},
        (*KNOWN, "draining"),
        query=(at.TIMEOUT,),
    ),
    Route(
        "GET",
        f"{ONE}/history",
        "get_print_history",
        "Show all that happened to a print job, and who did what.",
        {200: Answer("the history", PrintHistory)},
        KNOWN,
    ),
    Route(
        "POST",
        f"{ONE}/resolve",
        "resolve_print_job",
        "Close an open print job by a person's word, audited. What the terminal says later supersedes it.",
        {200: _NOW},
        ("malformed_json", "already_final", "call_outstanding", *KNOWN),
        body=PrintResolution,
        admin=True,
    ),
    Route(
        "POST",
        f"{ONE}/acknowledge",
        "acknowledge_print_job",
        "Close one attention by a person's word, audited.",
        {200: _NOW},
        ("malformed_json", *KNOWN),
        body=PrintAcknowledgement,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/print-jobs",
        "list_print_jobs",
        "List print jobs, newest first.",
        {200: Answer("a page", PrintJobPage)},
        ("storage_unavailable",),
        query=(
            at.LIMIT,
            at.PHASE,
            at.OPEN,
            at.TERMINAL,
            at.EXTERNAL_REFERENCE,
            at.ATTENTION,
            at.SINCE,
            at.UNTIL,
            at.NEXT,
        ),
    ),
)
