"""Target: the configuration, as text, as structure, and with files that it names."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from posd.config import Config, ConfigError, ConfigProblem, examine, load
from posd.config.profile import EDITIONS
from posd.config.schema import SECTIONS, TerminalConfig, keys
from posd.config.show import entries, profile_entries, toml_lines
from posd.config.values import HeaderError, HeaderValue
from tests.fuzz.mutation import damaged, documents
from tests.fuzz.target import Case, Target
from tests.fuzz.trees import Literal, Members, write

EXAMPLE = (Path(__file__).parents[2] / "config.example.toml").read_bytes()
#: A file beside the configuration, which headers and certificates may name; its content is drawn.
SECRET = "secret"

TERMINAL: dict[str, Any] = {
    "serial": "SN-1",
    "base_url": "https://192.0.2.7:6869",
    "fingerprint_sha256": "",
    "public_key_sha256": "",
    "server_name": "terminal.local",
    "headers": {"X-Api-Key": {"file": SECRET}, "X-Shop": "7"},
}
DEFAULTS = {
    section: {name: key.default for name, key in keys(kind).items() if key.default is not None}
    for section, kind in SECTIONS.items()
}
PROFILE = {
    "headers": {"X-Mode": "local"},
    "charge": {"method": "POST", "path": "/v1/charge", "confirmed": True, "abortable": False},
    "search": {"path": "/v1/{terminal_serial}/search", "method": "POST", "pointer": "/data"},
    "print-job": {"path": "/v1/job?id={print_job_id}"},
    "cloud": {"abort": {"path": "/v1/{terminal_serial}/abort"}, "headers": {"X-Mode": {"credential": "key"}}},
}
SEEDS: tuple[dict[str, Any], ...] = (
    {},
    {"terminals": [TERMINAL]},
    {**DEFAULTS, "terminals": [TERMINAL, {"serial": "SN-2"}]},
    {"terminals": [{"serial": "SN-1"}], "profile": PROFILE},
    {
        "webhooks": {"listen": "[::1]:8443", "public_url": "https://shop.example", "certificate": SECRET},
        "terminals": [{"serial": "C-1", "access_mode": "cloud", "base_url": "https://api.example"}],
        "profile": PROFILE,
    },
    {"terminal_defaults": {"ca_file": SECRET, "headers": {"X": {"file": SECRET}}}, "terminals": [TERMINAL]},
)

#: Values that are right somewhere, or nearly.
WORDS = (
    "cloud",
    "http",
    "http://192.0.2.7",
    "https://[fe80::1%eth0]:1",
    "https://user:word@host",
    "https://host:99999",
    "https://[",
    "fe80::1%x\ny",
    "[fe80::1%a\x00b]:80",
    "127.0.0.1:0",
    "UTC",
    "../UTC",
    "/etc/passwd",
    "America",
    "zone.tab",
    SECRET,
    f"{SECRET}\x00",
    f"{SECRET}\n",
    "/" + "x" * 5000,
    ".",
    "\x1b[2J",
    "a:b" * 32,
    "0" * 64,
    "_x._tcp.local.",
    "{print_job_id}",
    "/{terminal_serial}/{}",
    "file",
    "credential",
    "serial",
    "headers",
    *EDITIONS["classic"].local,
    *SECTIONS,
)

#: Values as TOML writes them, and does not.
LITERALS = tuple(
    map(
        Literal,
        (
            "0x" + "f" * 5000,
            "0b1",
            "0o17",
            "1" * 5000,
            "-1",
            "1e400",
            "nan",
            "-inf",
            "0.1",
            "1979-05-27T07:32:00Z",
            "1979-02-30",
            "07:32:00",
            "'''a\nb'''",
            '"\\u0000"',
            '"\\U0010ffff"',
            '"\\ud800"',
            "[" * 5000,
            "{a.b.c = 1}",
        ),
    )
)


def check_configuration(case: Case) -> None:
    """The file is read, or refused with problems that each name the file, the key, the reason and the cure on one line.

    No other error comes, `examine` tells the same, and what is in force, written out, is read again as the same.
    """
    secret, check_files = case.given
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "config.toml"
        file.write_bytes(case.body)
        (Path(name) / SECRET).write_bytes(secret)
        loaded, problems = _load(file, check_files)
        examined, same = examine(file, check_files=check_files)
        unread = [problem.key for problem in problems] == [""]  # whole; where the parser gave up differs with the stack
        assert same == problems or (unread and [problem.key for problem in same] == [""])
        assert (examined is None) == (loaded is None and all(problem.key == "" for problem in problems))
        if loaded is None:
            check_problems(problems, file)
            return
        check_loaded(loaded)
        shown = "\n".join(line for line, _ in toml_lines(loaded))
        if "{hidden = true}" not in shown:
            again = Path(name) / "shown.toml"
            again.write_text(shown)
            assert list(_values(load(again, check_files=check_files))) == list(_values(loaded))


def _load(file: Path, check_files: bool) -> tuple[Config | None, tuple[ConfigProblem, ...]]:
    try:
        return load(file, check_files=check_files), ()
    except ConfigError as error:
        return None, error.problems


def check_problems(problems: Sequence[ConfigProblem], file: Path) -> None:
    """Each problem names the file, what is wrong and the cure, in one line that a terminal can show."""
    assert problems
    for problem in problems:
        assert problem.file == str(file)
        assert problem.reason
        assert problem.cure
        assert str(problem).isprintable(), f"it is no line of text: {str(problem)!r}"
    assert all(problem.key for problem in problems) or len(problems) == 1


def check_loaded(loaded: Config) -> None:
    """What is in force is text that can be printed; headers are sendable, or say why they cannot be read."""
    for entry in entries(loaded):
        assert str(entry.value).isprintable(), f"{entry.section}.{entry.name} is {entry.value!r}"
    for profile_entry in profile_entries(loaded):
        assert profile_entry.row.path.isprintable()
    for terminal in loaded.terminals:
        assert isinstance(terminal, TerminalConfig)
        for header in terminal.headers.values():
            assert _unreadable(header).isprintable()


def _unreadable(header: HeaderValue) -> str:
    """Say why a header's value cannot be read, "" where it can."""
    try:
        header.resolve()
    except HeaderError as error:
        return str(error)
    return ""


def _values(loaded: Config) -> Iterator[tuple[str, str, Any]]:
    for entry in entries(loaded):
        if not entry.section.startswith("profile"):
            yield entry.section, entry.name, entry.value


@st.composite
def _written(draw: DrawFn) -> bytes:
    """Draw a configuration: a document, changed, written as sections or as one line a section."""
    document = draw(documents(SEEDS, (*WORDS, *LITERALS)))
    if not isinstance(document, Members):
        document = Members([("terminals", document)])
    lines: list[str] = []
    late: list[str] = []
    for name, value in document:
        if isinstance(value, Members) and draw(st.booleans()):
            late += [f"[{_key(name)}]", *(f"{_key(key)} = {_toml(item)}" for key, item in value)]
        else:
            lines.append(f"{_key(name)} = {_toml(value)}")
    return "\n".join([*lines, *late]).encode("utf-8", "replace")


def _key(name: str) -> str:
    bare = name and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name)
    return name if bare else _toml(name)


def _toml(value: Any) -> str:
    match value:
        case Members():
            return "{" + ", ".join(f"{_key(name)} = {_toml(item)}" for name, item in value) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case None:
            return '""'
        case _:
            return write(value)


@st.composite
def _lines(draw: DrawFn) -> bytes:
    """Draw the example, with lines of it taken out, doubled, moved and switched on."""
    lines = EXAMPLE.splitlines(keepends=True)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(("drop", "double", "move", "on"))):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "move":
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
            case _:
                lines[at] = lines[at].removeprefix(b"# ").removeprefix(b"#")
    return b"".join(lines)


#: What stands in the file that is named: mostly a header's value.
SECRETS = st.sampled_from((b"key-1", b"key-1\n", b"", b"\x00", b"a\nb", b"\xff", b"x" * 9000)) | st.binary(max_size=16)


def _cases(corpus: Sequence[bytes]) -> SearchStrategy[Case]:
    texts = [_written(), damaged(_written()), damaged(_lines())]
    if corpus:
        texts.append(damaged(st.sampled_from(corpus)))
    return st.builds(Case, st.one_of(texts), st.tuples(SECRETS, st.booleans()))


CONFIGURATION = Target(
    "configuration",
    _cases,
    check_configuration,
    tuple(f"posd/config/{name}.py" for name in ("reader", "values", "headers", "checks", "problems")),
)
