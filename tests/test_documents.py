"""The documents. Every named file exists, every link has a target, and the first page stays short."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/**/*.md", "tests/*.md") for path in ROOT.glob(pattern))
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))

#: Maximum of words in the README, which describes posd and names the next pages.
MAX_README_WORDS = 1200
#: Maximum of words in each page for a first day, and in all hand-written pages.
MAX_FIRST_DAY_WORDS = 600
MAX_WORDS = 45_000
#: Pages that a command writes, and generated parts of other pages.
GENERATED = frozenset({"codes.md", "logs.md", "scenarios.md"})
GENERATED_PART = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->|<!-- (\w+)\b.*?<!-- /\2 -->", re.DOTALL)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r'<a id="([^"]+)">')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: Pattern of a path in backticks. Paths of posd begin with posd/, or with the folder below it.
PATH = re.compile(r"`((?:[a-z_.]+/)+[\w.-]+\.(?:py|md|toml|sql|service|socket|timer|html|j2|json|svg))`")
#: Pattern of a module that a document names without its folder. MODULES: names of all modules.
MODULE = re.compile(r"`(\w+\.py)`")
MODULES = frozenset(path.name for folder in ("posd", "tests") for path in (ROOT / folder).rglob("*.py"))


def anchors(document: Path) -> set[str]:
    """Return the targets of links into a document, as GitHub makes them from the headings."""
    text = document.read_text("utf-8")
    return set(NAMED.findall(text)) | {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)
    }


def broken(document: Path) -> Iterator[str]:
    """Yield each link without a target. The site cannot have a folder as a target."""
    for target in LINK.findall(document.read_text("utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        there = (document.parent / file).resolve() if file else document
        if not there.is_file() or (anchor and anchor not in anchors(there)):
            yield target


@each_document
def test_every_link_leads_somewhere(document: Path) -> None:
    assert list(broken(document)) == []


@each_document
def test_every_named_file_exists(document: Path) -> None:
    text = document.read_text("utf-8")
    places = (ROOT, ROOT / "posd", document.parent)
    paths = [path for path in PATH.findall(text) if not any((place / path).exists() for place in places)]
    assert paths + [name for name in MODULE.findall(text) if name not in MODULES] == []


def test_each_threat_has_a_test_that_shows_the_defence() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns == ["who", "what they can reach", "what stops them", "which test shows it"]
    assert len(rows) >= 10
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == len(columns), row
        assert all(cells), row
        tests = re.findall(r"`(tests/[\w/]+\.py)`", cells[-1])
        assert tests, f"the row names no test: {row}"
        assert cells[-1] == ", ".join(f"`{test}`" for test in tests)
        for test in tests:
            assert Path(test).name.startswith("test_"), test
            assert (ROOT / test).is_file(), f"the test {test} does not exist: {row}"


def test_the_readme_is_short() -> None:
    words = (ROOT / "README.md").read_text("utf-8").split()
    assert len(words) <= MAX_README_WORDS


@pytest.mark.parametrize("page", ["till", "shop", "developer"])
def test_the_page_of_a_first_day_is_short(page: str) -> None:
    assert len((ROOT / "docs" / "start" / f"{page}.md").read_text("utf-8").split()) <= MAX_FIRST_DAY_WORDS


def test_the_hand_written_pages_stay_within_their_limit_of_words() -> None:
    texts = [path.read_text("utf-8") for path in DOCUMENTS if path.name not in GENERATED]
    assert sum(len(GENERATED_PART.sub("", text).split()) for text in texts) <= MAX_WORDS


#: Pattern of a citation of a document's heading in a comment of the code.
CITED = re.compile(r"\b(architecture|terminal API), ([A-Z][^();:.`]*)")
CITED_IN = {"architecture": ROOT / "docs/design/architecture.md", "terminal API": ROOT / "docs/design/terminal-api.md"}


def test_every_heading_that_the_code_cites_exists() -> None:
    headings = {name: set(HEADING.findall(path.read_text("utf-8"))) for name, path in CITED_IN.items()}
    missing = [
        f"{path.relative_to(ROOT)}: {name}, {heading}"
        for path in sorted((ROOT / "posd").rglob("*.py"))
        for name, cited in CITED.findall(path.read_text("utf-8"))
        for heading in re.split(r",\s+", cited.strip())
        if re.sub(r"\s+", " ", heading) not in headings[name]
    ]
    assert missing == []


def test_each_class_of_the_glossary_is_in_its_named_file() -> None:
    for row in (ROOT / "docs" / "design" / "glossary.md").read_text().splitlines():
        classes = re.findall(r"`([A-Z]\w+)`", row)
        where = [(ROOT / "posd" / file).read_text() for file in re.findall(r"`([a-z_/]+\.py)`", row)]
        for name in classes:
            assert any(re.search(rf"^class {name}\b", text, re.MULTILINE) for text in where), (name, row)
