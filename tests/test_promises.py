"""Each promise, threat and limit in the documents has a test in `promises.toml`, and that test exists."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "tests/promises.toml").read_text())
#: Beginning of a row in each document. In the architecture, two chapters have rows.
ROW = re.compile(r"^(?:\d\. |- |\| )(?:\*\*)?(.*)", re.MULTILINE)
CHAPTERS = {
    "docs/design/architecture.md": ("## Promises", "## Rules that hold everywhere"),
    "SECURITY.md": ("## Threats",),
    "docs/design/limits.md": ("# Known limits",),
}
TABLE_HEAD = ("who | ", "--- | ")


def rows(document: str) -> list[str]:
    """Return the text of each row, from its first word to the end of its line."""
    text = (ROOT / document).read_text("utf-8")
    chapters = [text.split(f"{head}\n")[1].split("\n## ")[0] for head in CHAPTERS[document]]
    return [row for chapter in chapters for row in ROW.findall(chapter) if not row.startswith(TABLE_HEAD)]


@pytest.mark.parametrize("document", CHAPTERS)
def test_each_row_of_a_document_has_its_tests(document: str) -> None:
    assert PROMISES.keys() == CHAPTERS.keys()
    keys = PROMISES[document]
    found = {row: [key for key in keys if row.startswith(key)] for row in rows(document)}
    assert {row: names for row, names in found.items() if len(names) != 1} == {}, "each row has one key"
    assert sorted(name for names in found.values() for name in names) == sorted(keys), "each key has one row"
    assert [key for key, tests in keys.items() if not tests] == []


def test_each_test_of_a_promise_exists() -> None:
    named = {test for keys in PROMISES.values() for tests in keys.values() for test in tests}
    missing = []
    for test in named:
        file, _, function = test.partition("::")
        path = ROOT / file
        if not path.is_file() or not re.search(rf"^(?:async )?def {function}\(", path.read_text(), re.MULTILINE):
            missing.append(test)
    assert missing == []
