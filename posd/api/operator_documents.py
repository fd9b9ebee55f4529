"""The documents of what only operators call: quarantine, reprocessing, backup, restore, prune."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base.callback_tokens import Channel
from posd.base.json_types import Moment, Uuid, Wire
from posd.payments import reprocess
from posd.printing.reprocess import PrintReport
from posd.storage.marks import Restored


class QuarantinedBody(msgspec.Struct, frozen=True):
    """A body that was refused though its callback address was authentic."""

    id: Annotated[int, Meta(description="its place; ascending")]
    received_at: Annotated[Moment, Meta(description="when it came")]
    channel: Annotated[str, Wire(Channel), Meta(description="which kind of callback")]
    client_transaction_id: Annotated[Uuid | None, Meta(description="whose address it was sent to, of a payment")]
    print_job_id: Annotated[str | None, Meta(description="whose address it was sent to, of a print job")]
    reason: Annotated[str, Meta(description="why it was refused")]
    peer: Annotated[str, Meta(description="the address that sent it")]
    body: Annotated[str, Meta(description="its bytes, in base64", extra_json_schema={"contentEncoding": "base64"})]


class Quarantine(msgspec.Struct, frozen=True):
    """A page of the quarantine."""

    quarantine: Annotated[list[QuarantinedBody], Meta(description="ascending by id")]
    next_after: Annotated[int, Meta(description="`after` of the next page")]


class Reprocessed(reprocess.Report):
    """What was applied of the quarantine, and where what is stored differed from what follows from the record."""

    printing: Annotated[PrintReport, Meta(description="the same of print jobs")] = msgspec.field(
        default_factory=PrintReport
    )


class RestoresSeen(msgspec.Struct, frozen=True):
    """The restores that a person has now looked at."""

    restores: Annotated[list[Restored], Meta(description="oldest first")]


class PruneProgress(msgspec.Struct, frozen=True):
    """What the removal of old records does now."""

    retention_days: Annotated[int, Meta(description="for how many days records are kept, 0 for ever")]
    doing: Annotated[str | None, Meta(description="what a run is doing, null where none runs")]
    removed: Annotated[int, Meta(description="what that run has removed up to now")]
