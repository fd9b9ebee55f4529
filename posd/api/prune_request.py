"""The body of `POST /prune`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from posd.api.backup_request import whole_number
from posd.base.json_text import Object, decode
from posd.base.json_types import Wire
from posd.base.problems import Problem

#: The most days that can be named, as in the configuration.
MOST_DAYS = 36_500


class PruneRequest(msgspec.Struct, frozen=True):
    """What is removed."""

    older_than_days: Annotated[
        int,
        Wire(Annotated[int, Meta(ge=0, le=MOST_DAYS)] | None),
        Meta(description="what ended longer ago; as configured if left out, where that is not 0"),
    ]
    dry_run: Annotated[bool, Meta(description="only tell what would be removed")] = False


FIELDS = PruneRequest.__struct_fields__


def read_prune(body: bytes, configured: int) -> PruneRequest:
    """Read the body; `configured` is for how many days records are kept, 0 for ever. Raise Problem."""
    try:
        document = decode(body) if body else Object()
    except ValueError as error:
        raise Problem("malformed_json", f"the body is not JSON ({error}); nothing was removed") from error
    if not isinstance(document, Object):
        raise _invalid([{"path": "", "message": "must be a JSON object"}])
    errors = [
        {"path": f"/{name}", "message": f"is not a field of this call; fields are {', '.join(FIELDS)}"}
        for name in document
        if name not in FIELDS
    ] + [{"path": f"/{name}", "message": "stands more than once"} for name in sorted(document.repeated)]
    days, dry_run = document.get("older_than_days"), document.get("dry_run", False)
    if days is None:
        days = configured
        if not days and not errors:
            message = "is required, for the configuration keeps everything (database.retention_days is 0)"
            errors.append({"path": "/older_than_days", "message": message})
    elif whole_number(days, 0, MOST_DAYS) is None:
        errors.append({"path": "/older_than_days", "message": f"must be a whole number of 0 to {MOST_DAYS}"})
    if not isinstance(dry_run, bool):
        errors.append({"path": "/dry_run", "message": "must be true or false"})
    if errors:
        raise _invalid(errors)
    return PruneRequest(int(days), bool(dry_run))


def _invalid(errors: list[dict[str, str]]) -> Problem:
    what = "; ".join(f"{error['path'] or 'the body'} {error['message']}" for error in errors)
    return Problem("invalid_request", f"nothing was removed: {what}", errors=errors)
