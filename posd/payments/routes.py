"""Calls on transactions."""

from posd.calls import parameters as at
from posd.calls.route import ENDS, Answer, Message, Route
from posd.calls.stream_documents import Notice
from posd.payments.decision_requests import Acknowledgement, Resolution
from posd.payments.documents import Event, Events, Outcome, Transaction, TransactionPage
from posd.payments.history import History
from posd.payments.request import StartRequest
from posd.records.request import Signed

ONE = "/v1/transactions/{client_transaction_id}"

#: Codes of what looks for one transaction.
KNOWN = ("not_found", "pruned", "storage_unavailable")
#: Codes of what starts one.
STARTS = (
    "malformed_json",
    "unknown_terminal",
    "terminal_offline",
    "terminal_busy",
    "id_reused",
    "sale_conflict",
    "already_derived",
    "unknown_original",
    "pruned",
    "storage_unavailable",
    "draining",
)
ABORTS = (
    "past_point_of_no_return",
    "already_final",
    "nothing_running",
    "not_abortable",
    "terminal_offline",
    "not_configured",
)
DECIDES = ("malformed_json", "already_final", "call_outstanding", *KNOWN)

#: A stream of a transaction's events.
EVENTS = (
    Message("STATUS", Event, "one event; it is called by its status, and its id is its seq"),
    Message("outcome", Outcome, "the end: the outcome, after which the stream closes"),
    Message("notice", Notice, "why the reader gets events that it did not expect; without an id"),
    *ENDS,
)

_NOW = Answer("the transaction as it then stands", Transaction)

ROUTES = (
    Route(
        "PUT",
        ONE,
        "start_transaction",
        "Start a payment, once. Repeat the call as often as you like with the same id and body: it is sent once.",
        {201: Answer("started now", Transaction), 200: Answer("was known already, by the same request", Transaction)},
        STARTS,
        body=StartRequest,
        judges_refusal=True,
    ),
    Route("GET", ONE, "get_transaction", "Show a payment.", {200: Answer("the transaction", Transaction)}, KNOWN),
    Route(
        "GET",
        f"{ONE}/outcome",
        "await_outcome",
        "Wait for the outcome. It is held until there is one, over everything but a restart of posd: then ask again.",
        {200: Answer("the outcome", Outcome), 202: Answer("`timeout` passed: still open, nothing else", Transaction)},
        (*KNOWN, "draining"),
        query=(at.TIMEOUT,),
    ),
    Route(
        "GET",
        f"{ONE}/events",
        "list_events",
        "Show the terminal's events, verbatim; or follow them live until the outcome.",
        {200: Answer("the events", Events, stream=EVENTS)},
        (*KNOWN, "draining"),
        headers=(at.LAST_EVENT_ID,),
    ),
    Route(
        "GET",
        f"{ONE}/history",
        "get_history",
        "Show all that happened to a payment, and who did what.",
        {200: Answer("the history", History)},
        KNOWN,
    ),
    Route(
        "POST",
        f"{ONE}/abort",
        "abort_transaction",
        "Ask the terminal to abort. The outcome still has to be awaited: an approval can be faster. No body.",
        {202: Answer("the terminal took it, or may have", Transaction)},
        (*ABORTS, *KNOWN),
    ),
    Route(
        "POST",
        f"{ONE}/reconcile",
        "reconcile_transaction",
        "Ask the terminal now what became of it; `last_search` tells what came. No body.",
        {200: _NOW},
        (*KNOWN, "draining"),
    ),
    Route(
        "POST",
        f"{ONE}/release",
        "release_transaction",
        "Free the terminal of a payment that will not end. The payment stays open and is still asked for.",
        {200: _NOW},
        DECIDES,
        body=Signed,
    ),
    Route(
        "POST",
        f"{ONE}/resolve",
        "resolve_transaction",
        "Close an open payment by a person's word, audited. What the terminal says later supersedes it.",
        {200: _NOW},
        DECIDES,
        body=Resolution,
        admin=True,
    ),
    Route(
        "POST",
        f"{ONE}/acknowledge",
        "acknowledge_transaction",
        "Close one attention by a person's word, audited.",
        {200: _NOW},
        ("malformed_json", *KNOWN),
        body=Acknowledgement,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/transactions",
        "list_transactions",
        "List payments, newest first.",
        {200: Answer("a page", TransactionPage)},
        ("storage_unavailable",),
        query=(
            at.LIMIT,
            at.PHASE,
            at.OPEN,
            at.TERMINAL,
            at.SALE,
            at.ATTENTION,
            at.SINCE,
            at.UNTIL,
            at.NEXT,
            at.ANY_METADATA,
        ),
    ),
)
