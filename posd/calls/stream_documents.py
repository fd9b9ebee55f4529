"""The documents of posd's own messages in event streams (docs/streams.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from posd.base.json_types import OPEN


class Notice(msgspec.Struct, frozen=True):
    """Why a reader may have missed something."""

    code: Annotated[
        Literal["changes_removed", "place_unknown"],
        OPEN,
        Meta(description="`changes_removed`: those up to `seq` are not all there any more; `place_unknown`: a restore"),
    ]
    detail: Annotated[str, Meta(description="what it means, and what to do; for people")]
    seq: Annotated[int, Meta(description="up to where changes are removed, or after which the reader goes on")]


class CutOff(msgspec.Struct, frozen=True):
    """The stream was cut off because nothing of it was taken."""

    code: Annotated[Literal["cut_off"], Meta(description="always this")]
    detail: Annotated[str, Meta(description="for how long, and how to resume; for people")]


class Ended(msgspec.Struct, frozen=True):
    """The problem that ended the stream (RFC 9457), as it stands in a refusal."""

    type: Annotated[str, Meta(description="`urn:posd:problem:CODE`")]
    title: Annotated[str, Meta(description="the same for every problem of the code")]
    status: Annotated[int, Meta(description="the HTTP status that it has in a refusal")]
    detail: Annotated[str, Meta(description="what happened, and what to do; for people")]
    code: Annotated[str, Meta(description="what a program looks at")]
