"""Scenario files of a test."""

from pathlib import Path

A, C, Q = "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED"
OK, CANCELED = "APPROVAL", "TERMINAL_CANCELED"

#: Members that every file must have. No test reads these members.
HEAD = """
summary = "It happens."
when = "Sometimes."
"""


def step(status: str | None = None, *, after: str = "1", **fields: str) -> str:
    """Return a step as TOML. The values of the fields are also TOML."""
    lines = [f"after = {after}"] + ([f'status = "{status}"'] if status else [])
    return "\n".join(["[[steps]]", *lines, *(f"{name} = {value}" for name, value in fields.items())]) + "\n"


def steps(*statuses: str) -> str:
    return "".join(step(status) for status in statuses)


APPROVED = steps(A, C, Q, OK)


def write(directory: Path, text: str, name: str = "own") -> Path:
    file = directory / f"{name}.toml"
    file.write_text(HEAD + text)
    return file
