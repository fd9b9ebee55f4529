"""What the doctor says: one finding a thing that was looked at."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Status(StrEnum):
    """How well it is. A warning does not keep payments from being taken now; a failure does, or soon will."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class Said(msgspec.Struct, frozen=True):
    """What a check says of a subject: its status, what that means, and what to do ("" where there is nothing)."""

    status: Status
    subject: str
    meaning: str
    todo: str = ""


class Finding(msgspec.Struct, frozen=True):
    """The same with the name of the check, as `posd doctor --json` prints it."""

    check: str
    subject: str
    status: Status
    meaning: str
    todo: str


#: What a check returns: it yields what it finds as it finds it, so that a time limit loses only the rest.
Findings = Iterator[Said]


def ok(subject: str, meaning: str, todo: str = "") -> Said:
    """Say that something is as it should be."""
    return Said(Status.OK, subject, meaning, todo)


def warning(subject: str, meaning: str, todo: str) -> Said:
    """Say that something should be looked at."""
    return Said(Status.WARNING, subject, meaning, todo)


def failure(subject: str, meaning: str, todo: str) -> Said:
    """Say that something has to be mended."""
    return Said(Status.FAILURE, subject, meaning, todo)
