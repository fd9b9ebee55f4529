"""Examples: made of the types that are sent, so that they cannot have what no answer has."""

from decimal import Decimal
from typing import Any

from msgspec import Raw

from posd.api import documents
from posd.payments import documents as payments
from posd.payments.lifecycle import Status
from posd.payments.model import (
    Evidence,
    EvidenceKind,
    LastSearch,
    NextStep,
    OperationType,
    Receipt,
    Result,
    SearchResult,
)
from posd.printing import documents as printing
from posd.printing.model import DecidedBy, PrintStatus
from posd.records.model import AttemptLine, IntentLine, Phase
from posd.storage.backup import Rotated
from posd.storage.marks import OldFile, Restored
from posd.terminals.documents import Terminal
from posd.upkeep.retention import Removed, Report

ID = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
VOID_ID = "0d6a1a52-8a0e-4b57-9a53-5d9d3f6f2f10"
REFERENCE = "c2f5a9d4-6c0c-4c0b-8a0e-2b7a5f3e9d21"
EVENT_ID = "5b1e0a7c-2d4f-4e6a-8b9c-0d1e2f3a4b5c"
SERIAL = "SN-0001"
SALE = "2026-11-20/till-3/1042"
BEGAN, READ, ENDED = "2026-11-20T10:42:00.120Z", "2026-11-20T10:42:03.518Z", "2026-11-20T10:42:09.904Z"
SIGNED = {"operator": "Ana", "note": "the customer paid in cash"}

#: operation -> name -> body.
ASKED: dict[str, dict[str, Any]] = {
    "start_transaction": {
        "charge": {
            "terminal": SERIAL,
            "type": "charge",
            "amount": {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00"), "subtotal_iva0": 0},
            "sale": SALE,
            "metadata": {"reference": "ticket 1042"},
            "options": {},
        },
        "amount_as_text": {"terminal": SERIAL, "amount": {"subtotal_iva0": "11.20"}},
        "void": {"terminal": SERIAL, "type": "void", "original": ID},
    },
    "release_transaction": {"release": SIGNED},
    "resolve_transaction": {
        "approved": {"result": "approved", "transaction_reference": REFERENCE, "operator": "Ana", "note": "slip 0042"},
        "not_started": {"result": "not_started", "operator": "Ana", "note": "the terminal was switched off"},
    },
    "acknowledge_transaction": {"gap": {"code": "gap", "operator": "Ana", "note": "compared with the slip"}},
    "start_print_job": {
        "receipt": {"terminal": SERIAL, "external_reference": "ticket 1042", "document": {"text": "Thank you!"}}
    },
    "resolve_print_job": {"printed": {"result": "COMPLETED", "operator": "Ana", "note": "the receipt is here"}},
    "acknowledge_print_job": {"stuck": {"code": "print_stuck", "operator": "Ana", "note": "paper was put in"}},
    "back_up": {
        "file": {"path": "/var/backups/posd/posd.db"},
        "directory": {"into": "/var/backups/posd", "keep": 14},
        "answer": {"send": True},
    },
    "confirm_restore": {"seen": {"operator": "Ana", "note": "compared with the tills"}},
    "prune": {"tell": {"older_than_days": 400, "dry_run": True}},
}

OUTCOME = payments.Outcome(
    result=Result.APPROVED,
    status=Status.APPROVAL,
    transaction_reference=REFERENCE,
    ticket_number="000042",
    failure_reason=None,
    reached_acquirer=True,
    reading_type="CONTACTLESS",
    authorized_amount=Decimal("11.20"),
    receipt=Receipt(authorization_code="A1B2C3", franchise="VISA", card_type="credit", cvm_type="NO_CVM"),
    reversal=None,
    decided_at=ENDED,
    evidence=(Evidence(kind=EvidenceKind.EVENT, at=ENDED, event_id=EVENT_ID),),
    final_event=Raw(b'{"event_id": "%s", "status": "APPROVAL"}' % EVENT_ID.encode()),
)


def _transaction(**fields: Any) -> payments.Transaction:
    running: dict[str, Any] = {
        "client_transaction_id": ID,
        "terminal": SERIAL,
        "type": OperationType.CHARGE,
        "sale": SALE,
        "phase": Phase.ACTIVE,
        "status": Status.CARD_PRESENTED,
        "reading_type": "CONTACTLESS",
        "next_step": NextStep.WAIT,
        "abortable": True,
        "released": False,
        "amount": Raw(b'{"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0}'),
        "metadata": Raw(b'{"reference": "ticket 1042"}'),
        "options": Raw(b"{}"),
        "transaction_reference": None,
        "original": None,
        "derived": [],
        "created_at": BEGAN,
        "updated_at": READ,
        "last_search": None,
        "outcome": None,
        "attention": (),
    }
    return payments.Transaction(**running | fields)


STARTED = _transaction(status=Status.TERMINAL_ACKNOWLEDGED, reading_type=None)
RUNNING = _transaction()
APPROVED = _transaction(
    phase=Phase.FINAL,
    status=Status.APPROVAL,
    next_step=NextStep.DONE,
    abortable=False,
    derived=[VOID_ID],
    updated_at=ENDED,
    outcome=OUTCOME,
)
CANCELED = payments.Outcome(
    result=Result.CANCELED,
    status=None,
    transaction_reference=None,
    ticket_number=None,
    failure_reason=None,
    reached_acquirer=None,
    reading_type=None,
    authorized_amount=None,
    receipt=None,
    reversal=None,
    decided_at=ENDED,
    evidence=(Evidence(kind=EvidenceKind.OPERATOR, at=ENDED, operator="Ana", note="the customer left"),),
)
RESOLVED = _transaction(phase=Phase.FINAL, next_step=NextStep.NEW_ID_OK, abortable=False, outcome=CANCELED)

JOB = printing.PrintJob(
    print_job_id="receipt-1042",
    terminal=SERIAL,
    external_reference="ticket 1042",
    reprint_of=None,
    reprints=[],
    status=PrintStatus.COMPLETED,
    phase=Phase.FINAL,
    error_code=None,
    error_message=None,
    reason=None,
    terminal_job_id=None,
    created_at=BEGAN,
    updated_at=ENDED,
    decided_by=DecidedBy.WEBHOOK,
    attention=(),
)
PENDING = printing.PrintJob(
    print_job_id="receipt-1042",
    terminal=SERIAL,
    external_reference="ticket 1042",
    reprint_of=None,
    reprints=[],
    status=PrintStatus.PENDING,
    phase=Phase.ACTIVE,
    error_code=None,
    error_message=None,
    reason=None,
    terminal_job_id=None,
    created_at=BEGAN,
    updated_at=BEGAN,
    decided_by=None,
    attention=(),
)
TERMINAL = Terminal(
    serial=SERIAL,
    brand="Brand",
    model="Model",
    base_url="https://192.0.2.7:6869",
    source="mdns",
    reachable=True,
    last_seen=READ,
    transaction=ID,
    reason=None,
    checked_at=READ,
    claims=[],
)
EVENT = payments.Event(
    seq=17,
    received_at=READ,
    verdict="applied",
    event=Raw(b'{"event_id": "%s", "status": "CARD_PRESENTED"}' % EVENT_ID.encode()),
)
WELL = documents.Checks(
    storage=documents.Check("ok", "the database can be read, and the last write succeeded"),
    webhook_listener=documents.Check("ok", "listening on port 8443, 2 connections"),
    certificate=documents.CertificateCheck(
        "ok", "valid for 390 more days", documents.Served("9f" * 32, "2027-12-20T00:00:00.000Z", 8443), []
    ),
    discovery=documents.Check("ok", "listening for announcements"),
    clock=documents.Check("ok", ENDED),
)
ILL = documents.Checks(
    storage=documents.Check("failing", "the last write failed: database or disk is full; free the disk"),
    webhook_listener=WELL.webhook_listener,
    certificate=WELL.certificate,
    discovery=WELL.discovery,
    clock=WELL.clock,
)
QUARANTINED = documents.QuarantinedBody(
    id=1,
    received_at=READ,
    channel="transactions",
    client_transaction_id=ID,
    print_job_id=None,
    reason="the serial is not in the fleet",
    peer="192.0.2.7",
    body="e30=",
)
CHANGE = documents.Change(
    seq=1042,
    at=READ,
    kind="transaction",
    id=ID,
    reason="event:CARD_PRESENTED",
    phase=Phase.ACTIVE,
    status="CARD_PRESENTED",
    result=None,
    attention=(),
    terminal=SERIAL,
)
RESTORED = Restored(
    at=BEGAN,
    file="/var/backups/posd/posd.db",
    made_at="2026-11-20T03:00:00.000Z",
    replaced="/var/lib/posd/posd.db.replaced",
    old=OldFile.READ,
    taken_over=3,
    by_id=0,
)

#: operation, status -> document.
ANSWERED: dict[tuple[str, int], Any] = {
    ("start_transaction", 201): STARTED,
    ("start_transaction", 200): RUNNING,
    ("get_transaction", 200): APPROVED,
    ("await_outcome", 200): OUTCOME,
    ("await_outcome", 202): RUNNING,
    ("list_events", 200): payments.Events([EVENT]),
    ("get_history", 200): payments.History(
        [
            IntentLine(at=BEGAN, terminal=SERIAL),
            AttemptLine(at=BEGAN, judgement="acknowledged", http_status=200, reason=None),
            payments.EventLine(at=READ, seq=17, status="CARD_PRESENTED", verdict="applied"),
        ]
    ),
    ("abort_transaction", 202): RUNNING,
    ("reconcile_transaction", 200): _transaction(last_search=LastSearch(at=ENDED, result=SearchResult.FOUND)),
    ("release_transaction", 200): _transaction(released=True, abortable=False, next_step=NextStep.ASK_PERSON),
    ("resolve_transaction", 200): RESOLVED,
    ("acknowledge_transaction", 200): RUNNING,
    ("list_transactions", 200): payments.TransactionPage([RUNNING], next_cursor=None),
    ("start_print_job", 201): PENDING,
    ("start_print_job", 200): PENDING,
    ("get_print_job", 200): JOB,
    ("await_print_job", 200): JOB,
    ("await_print_job", 202): PENDING,
    ("get_print_history", 200): printing.PrintHistory(
        [
            IntentLine(at=BEGAN, terminal=SERIAL),
            AttemptLine(at=BEGAN, judgement="accepted", http_status=202, reason=None),
            printing.PollLine(at=READ, status="IN_PROGRESS", error_code=None, error_message=None),
        ]
    ),
    ("resolve_print_job", 200): JOB,
    ("acknowledge_print_job", 200): PENDING,
    ("list_print_jobs", 200): printing.PrintJobPage([PENDING], next_cursor=None),
    ("list_terminals", 200): documents.Terminals([TERMINAL]),
    ("get_terminal", 200): TERMINAL,
    ("read_feed", 200): documents.FeedPage([CHANGE], next_after=1042, place="1042-5f3a9c01", notices=[]),
    ("get_health", 200): documents.Health("ok", WELL),
    ("get_health", 503): documents.Health("failing", ILL),
    ("get_version", 200): documents.Version(version="0.1.0", api="v1", schema=1),
    ("get_metrics", 200): '# TYPE posd_payments_open gauge\nposd_payments_open{phase="active"} 1\n',
    ("list_quarantine", 200): documents.Quarantine([QUARANTINED], next_after=1),
    ("get_quarantined", 200): QUARANTINED,
    ("reprocess", 200): documents.Reprocessed(transactions=1042, quarantined=1),
    ("back_up", 200): Rotated(
        path="/var/backups/posd/posd-20261120T030000Z.db",
        bytes=1_048_576,
        transactions=1042,
        at=BEGAN,
        kept=14,
        removed=["posd-20261106T030000Z.db"],
        unusable=[],
    ),
    ("confirm_restore", 200): documents.RestoresSeen([RESTORED]),
    ("get_prune", 200): documents.PruneProgress(retention_days=400, doing=None, removed=0),
    ("prune", 200): Report(
        before="2025-10-16T00:00:00.000Z", dry_run=True, removed=Removed(transactions=12), kept={"attention": 1}
    ),
}

#: code -> its own fields.
EXTRA: dict[str, dict[str, Any]] = {
    "invalid_request": {"errors": [{"path": "/amount/iva", "message": "must not be negative"}]},
    "unknown_terminal": {"fleet": [SERIAL]},
    "terminal_busy": {"blocking_transaction": ID},
    "id_reused": {"fields": ["amount"]},
    "sale_conflict": {"transactions": [ID]},
    "already_derived": {"transactions": [VOID_ID]},
    "pruned": {"result": "approved", "terminal": SERIAL, "transaction_type": "charge", "ended_on": "2025-10-01"},
    "already_final": {"outcome": OUTCOME},
    "payload_too_large": {"limit_bytes": 262_144},
    "internal_error": {"error_id": "9f2c4e6a8b0d1f3e"},
}
