"""What can be wrong with a configuration, for people and for programs."""

import re
from dataclasses import dataclass

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing to mend: `key` is the dotted path (`terminals[1].serial`), "" for the file as a whole."""

    file: str
    key: str
    reason: str
    cure: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key + ' ' if self.key else ''}{self.reason}; {self.cure}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` lists everything that is wrong with it, in the file's order."""

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason why a value cannot be used; `at` is the path below the value's key, "" for the value itself."""

    reason: str
    cure: str
    at: str = ""


class UnusableValueError(ValueError):
    """A value cannot be used, told by its reader, which knows neither the file nor the key."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(fault.reason for fault in faults))
        self.faults = faults


def unusable(reason: str, cure: str) -> UnusableValueError:
    """Make the error for a value with a single fault."""
    return UnusableValueError(Fault(reason, cure))


def written_key(name: str) -> str:
    """Write a key for people: quoted where TOML wants it quoted, and with nothing in it that cannot be printed."""
    if _BARE_KEY.fullmatch(name):
        return name
    return '"' + "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name) + '"'
