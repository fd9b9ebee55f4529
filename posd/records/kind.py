"""What differs between payments and print jobs, where both are handled in one way."""

from typing import Any, Generic

import msgspec

from posd.base.ids import Channel
from posd.records.pruned import PrunedRecords
from posd.records.table import R, RecordTable


class RecordKind(msgspec.Struct, Generic[R], frozen=True):
    """One kind of record.

    `word` begins the names of its log events, `name` is that of its id in log lines and its `kind` in the feed, `noun`
    is what it is called in sentences.
    """

    channel: Channel
    table: RecordTable[R]
    pruned: PrunedRecords[Any]
    word: str
    name: str
    noun: str

    def named(self, identity: str) -> dict[str, str]:
        """Return the field of a log line that says which one it is about."""
        return {self.name: identity}
