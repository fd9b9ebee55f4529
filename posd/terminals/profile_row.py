"""One row of the terminal profile: how one operation is called."""

from dataclasses import dataclass
from typing import Literal

Method = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True)
class Row:
    """One operation. `path` may hold `{placeholders}`; `pointer` (search alone) is the JSON Pointer to the
    transactions in the reply, "" for the whole reply; `abortable` (what starts something) is whether the POS can
    abort it."""

    method: Method
    path: str
    confirmed: bool = False
    pointer: str = ""
    abortable: bool = True

    @property
    def assumption(self) -> bool:
        """Whether nobody has vouched for this row yet: its answers are no proof."""
        return not self.confirmed
