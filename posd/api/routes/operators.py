"""Calls for operators alone: quarantine, reprocessing, backup, restore, prune."""

from posd.api.backup_request import BackupRequest
from posd.api.operator_documents import PruneProgress, Quarantine, QuarantinedBody, Reprocessed, RestoresSeen
from posd.api.prune_request import PruneRequest
from posd.calls import parameters as at
from posd.calls.route import Answer, Route
from posd.records.request import Signed
from posd.storage.backup import Written
from posd.storage.rotation import Rotated
from posd.upkeep.retention import Report

STORED = ("storage_unavailable",)
#: What `send` is answered with.
OCTETS = "application/octet-stream"

ROUTES = (
    Route(
        "GET",
        "/v1/quarantine",
        "list_quarantine",
        "List what was refused though its callback address was authentic, with its bytes and the reason.",
        {200: Answer("a page", Quarantine)},
        STORED,
        query=(at.AFTER, at.LIMIT),
        admin=True,
    ),
    Route(
        "GET",
        "/v1/quarantine/{id}",
        "get_quarantined",
        "Show one of them.",
        {200: Answer("the body and the reason", QuarantinedBody)},
        ("not_found", *STORED),
        admin=True,
    ),
    Route(
        "POST",
        "/v1/reprocess",
        "reprocess",
        "Apply what can be applied of the quarantine, and derive everything again from the record. No body.",
        {200: Answer("what was done", Reprocessed)},
        STORED,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/backup",
        "back_up",
        "Copy the database, with the callback keys, while payments go on: to a file, into a directory of which the "
        "newest are kept, or into the answer.",
        {200: Answer("what was written; of `send` the backup itself", Rotated | Written, also=OCTETS)},
        ("malformed_json", *STORED, "draining"),
        body=BackupRequest,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/restore/seen",
        "confirm_restore",
        "Say that a person has looked at what a restore left behind; health is ok again.",
        {200: Answer("the restores", RestoresSeen)},
        ("malformed_json", "not_found", *STORED),
        body=Signed,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/prune",
        "get_prune",
        "Say for how many days records are kept, and what their removal is doing.",
        {200: Answer("the progress", PruneProgress)},
        admin=True,
    ),
    Route(
        "POST",
        "/v1/prune",
        "prune",
        "Remove what ended longer ago than the days; payments go on meanwhile.",
        {200: Answer("what was removed, or would be", Report)},
        ("malformed_json", *STORED, "draining"),
        body=PruneRequest,
        body_required=False,
        admin=True,
    ),
)
