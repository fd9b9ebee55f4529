"""Target: the text of a configuration, with a file that the configuration names. tests/config/test_problems.py tests
the structure.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from posd.config import Config, ConfigError, ConfigProblem, examine, load
from posd.config.schema import TerminalConfig
from posd.config.show import entries, profile_entries
from tests.fuzz.mutation import damaged
from tests.fuzz.target import Case, Target, beside

EXAMPLE = (Path(__file__).parents[2] / "config.example.toml").read_bytes()
#: A file beside the configuration. Headers and certificates may name the file. The content of the file is drawn.
SECRET = "secret"


def check_configuration(case: Case) -> None:
    """Check a configuration file. posd reads the file or refuses it. Each problem names the file, the key, the reason
    and the cure on one line. No other error occurs, and `examine` gives the same result.
    """
    secret, check_files = case.given
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "config.toml"
        file.write_bytes(case.body)
        (Path(name) / SECRET).write_bytes(secret)
        loaded, problems = None, tuple[ConfigProblem, ...]()
        try:
            loaded = load(file, check_files=check_files)
        except ConfigError as error:
            problems = error.problems
        examined, same = examine(file, check_files=check_files)
        # The key is empty for a whole file. The place of the parser's error depends on the stack.
        unread = all([problem.key for problem in found] == [""] for found in (problems, same))
        assert same == problems or unread
        assert (examined is None) == (loaded is None and all(problem.key == "" for problem in problems))
        if loaded is None:
            check_problems(problems, file)
            return
        check_loaded(loaded)


def check_problems(problems: Sequence[ConfigProblem], file: Path) -> None:
    """Check that each problem names the file, the mistake and the cure, in one line without control characters."""
    assert problems
    for problem in problems:
        assert problem.file == str(file)
        assert problem.reason
        assert problem.cure
        assert str(problem).isprintable(), f"the problem is not one line of text: {str(problem)!r}"
    assert all(problem.key for problem in problems) or len(problems) == 1


def check_loaded(loaded: Config) -> None:
    """Check that every value in force can be printed. Check that each header can be sent, or that posd gives the
    reason.
    """
    for entry in entries(loaded):
        assert str(entry.value).isprintable(), f"{entry.section}.{entry.name} cannot be printed: {entry.value!r}"
    for profile_entry in profile_entries(loaded):
        assert profile_entry.row.path.isprintable()
    for terminal in loaded.terminals:
        assert isinstance(terminal, TerminalConfig)
        for header in terminal.headers.values():
            reason = ""
            try:
                header.resolve()
            except ConfigError as error:
                reason = str(error)
            assert reason.isprintable()


@st.composite
def _lines(draw: DrawFn) -> bytes:
    """Draw the example configuration with lines removed, doubled, moved and uncommented."""
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


#: Content of the named file, mostly a header's value.
SECRETS = st.sampled_from((b"key-1", b"key-1\n", b"", b"\x00", b"a\nb", b"\xff", b"x" * 9000)) | st.binary(max_size=16)


CONFIGURATION = Target(beside(damaged(_lines()), SECRETS, st.booleans()), check_configuration)
