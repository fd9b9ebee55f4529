"""docs/pictures/lifecycle.svg shows exactly the lifecycle table of the core. People edit the file by hand."""

from pathlib import Path
from xml.etree import ElementTree as Xml

from posd.payments.lifecycle import STATUSES, TRANSITIONS, Status
from posd.payments.model import RESULTS
from posd.records.model import Phase

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = Xml.parse(Path(__file__).parents[1] / "docs" / "pictures" / "lifecycle.svg")


def test_the_arrows_of_the_diagram_are_the_transitions_of_the_table() -> None:
    arrows = {(path.get("data-from", ""), path.get("data-to", "")) for path in PICTURE.iter(f"{SVG}path")}
    drawn = {arrow for arrow in arrows if STATUSES.get(arrow[1])}
    assert drawn == {(before or "starting", after) for before, row in TRANSITIONS.items() for after in row}


def test_the_diagram_has_every_phase_and_status_and_result() -> None:
    boxes = {rect.get("data-state") for rect in PICTURE.iter(f"{SVG}rect")} - {None}
    assert boxes == {*Status, "starting", "in_doubt", "not_started"}
    assert {rect.get("data-phase") for rect in PICTURE.iter(f"{SVG}rect")} - {None} == set(Phase)
    words = " ".join("".join(text.itertext()) for text in PICTURE.iter(f"{SVG}text"))
    assert all(f"{result} · {status}" in words for status, result in RESULTS.items())
