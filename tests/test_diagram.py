"""docs/pictures/lifecycle.svg is drawn from the lifecycle table, and shows all of it."""

from xml.etree import ElementTree as Xml

import pytest

from posd.payments import lifecycle
from posd.payments.lifecycle import STATUSES, TRANSITIONS, Status
from posd.payments.model import RESULTS, Result
from posd.records.model import Phase
from tests import diagram

SVG = "{http://www.w3.org/2000/svg}"


def arrows(svg: str) -> set[tuple[str, str]]:
    return {(path.get("data-from", ""), path.get("data-to", "")) for path in Xml.fromstring(svg).iter(f"{SVG}path")}


def test_the_file_is_the_drawing() -> None:
    assert diagram.FILE.read_text("utf-8") == diagram.draw(), "run python -m tests.diagram"


def test_each_transition_of_the_table_is_an_arrow_and_each_arrow_between_states_is_in_the_table() -> None:
    drawn = {arrow for arrow in arrows(diagram.FILE.read_text("utf-8")) if STATUSES.get(arrow[1])}
    assert drawn == {(before or "starting", after) for before, row in TRANSITIONS.items() for after in row}


def test_a_transition_that_the_table_gets_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**TRANSITIONS, Status.CARD_PRESENTED: TRANSITIONS[Status.CARD_PRESENTED] | {Status.DECLINED}}
    monkeypatch.setattr(diagram, "TRANSITIONS", more)
    assert (lifecycle.CARD_PRESENTED, lifecycle.DECLINED) in arrows(diagram.draw())


def test_every_phase_status_and_result_is_there() -> None:
    svg = Xml.fromstring(diagram.FILE.read_text("utf-8"))
    boxes = {rect.get("data-state") for rect in svg.iter(f"{SVG}rect")} - {None}
    assert boxes == {*Status, "starting", "in_doubt", "not_started"}
    assert {rect.get("data-phase") for rect in svg.iter(f"{SVG}rect")} - {None} == set(Phase)
    words = " ".join("".join(text.itertext()) for text in svg.iter(f"{SVG}text"))
    assert all(str(result) in words for result in Result)
    assert all(f"{result} · {status}" in words for status, result in RESULTS.items())


def test_it_needs_nothing_but_itself() -> None:
    text = diagram.FILE.read_text("utf-8")
    assert "href" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
