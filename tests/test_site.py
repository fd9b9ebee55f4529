"""The site of the documents. The site builds strictly and loads nothing from a network."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_documents import DOCUMENTS, ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("material") is None, reason="needs mkdocs-material (pip install -e '.[docs]')"),
]


def test_the_site_has_every_document_and_loads_nothing_from_a_network(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "packaging" / "site", tmp_path], check=True)
    for document in (*DOCUMENTS, ROOT / "docs" / "reference" / "commands.md"):
        page = tmp_path / document.relative_to(ROOT).with_suffix(".html")
        page = page.with_name("index.html") if document.name == "README.md" else page
        text = page.read_text("utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]*src="(https?:[^"]*)', text) == [], page
        assert re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]*)', text) == [], page
