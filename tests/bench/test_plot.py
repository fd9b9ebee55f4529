"""The plot of the growth is a whole SVG that says its figures in words too."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

from tests.bench.bench import Bench, sync_seconds
from tests.bench.measures import stored
from tests.bench.plot import Bar, Panel, bars, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_every_value_and_bound_stands_in_it_and_in_its_description() -> None:
    values = [0.5, 0.25, 900.0]
    words = ["a half", "a quarter", "<900>"]
    panel = Panel("Waiting & more", "seconds", values, words, 1.0, "at most 2 ×", upper=True)
    root = ElementTree.fromstring(draw("Title", "under it", ["below"], ["0", "1 k", "1 M"], [panel] * 3))
    told = root.findtext(f"{SVG}desc")
    assert told is not None
    assert "Waiting & more: a half at 0, a quarter at 1 k, <900> at 1 M; bound: at most 2 ×." in told
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Title", "under it", "below", "Waiting & more", *words, "0", "1 k", "1 M"} <= set(shown)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for line in root.iter(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = (float(number) for number in point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_each_bar_says_its_figure_and_stays_within_the_picture() -> None:
    figures = [
        Bar("Quick & small", 0.5, -0.1, 0.75, "a half", good=True),
        Bar("Large", 2.5, 2.0, 30.0, "<two>", good=False, bound=2.0),
    ]
    root = ElementTree.fromstring(bars("Title", "under it", "below", figures, 1.0))
    told = root.findtext(f"{SVG}desc")
    assert told is not None
    assert "Quick & small: a half, -0.1 to 0.75. Large: <two>, 2 to 30." in told
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Title", "under it", "below", "Quick & small: a half", "Large: <two>"} <= set(shown)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for line in root.iter(f"{SVG}line"):
        assert all(0 <= float(line.attrib[name]) <= width for name in ("x1", "x2"))
        assert all(0 <= float(line.attrib[name]) <= height for name in ("y1", "y2"))
    assert [bar.attrib["class"] for bar in root.iter(f"{SVG}rect") if "class" in bar.attrib] == ["bar", "poor"]


@pytest.mark.slow
async def test_the_short_version_draws_one_and_keeps_its_figures(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="posd-") as directory:
        rows = await stored.measure(Bench(Path(directory), True, sync_seconds(tmp_path), tmp_path))
    assert len(rows) == 7
    drawn = tmp_path / "growth.svg"
    assert ElementTree.parse(drawn).getroot().tag == f"{SVG}svg"
    figures = json.loads(drawn.with_suffix(".json").read_text())
    assert [side["stored"] for side in figures] == [0, 500]
    assert all(side["acknowledgements_per_s"] and side["look_up_s"] and side["start_s"] for side in figures)
