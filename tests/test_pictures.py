"""The pictures of docs/pictures. Commands draw these pictures. The pictures are current, and complete without a
network."""

import pytest

from tests.pictures import COMMANDS, FOLDER, pictures, words
from tests.test_documents import DOCUMENTS

NAMES = (*COMMANDS, "watch-80x24")
each_picture = pytest.mark.parametrize("name", NAMES)


def test_every_picture_is_shown_in_a_document() -> None:
    shown = "".join(document.read_text("utf-8") for document in DOCUMENTS)
    assert [path.name for path in sorted(FOLDER.iterdir()) if f"pictures/{path.name})" not in shown] == []


@each_picture
def test_a_picture_loads_nothing_from_a_network(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text("utf-8")
    assert "@font-face" not in text
    assert "@import" not in text
    assert "href=" not in text


@pytest.mark.slow
def test_each_picture_equals_the_output_of_its_command() -> None:
    stored = {name: words((FOLDER / f"{name}.svg").read_text("utf-8")) for name in NAMES}
    assert {name: words(picture) for name, picture in pictures()} == stored, "run python -m tests.pictures"
