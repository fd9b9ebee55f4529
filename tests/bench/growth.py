"""How the figures grow with what is stored, drawn as one plot."""

import json
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.plot import Panel, draw
from tests.bench.side import NEWEST, TERMINALS, Side

_MILLISECONDS = 1000
#: How much longer a start may take over a million stored payments, in seconds.
STARTS_LATER = 0.3


def write(path: Path, measured: Sequence[Side]) -> None:
    """Write the plot to `path`, and all figures beside it, as JSON."""
    path.write_text(plot(measured))
    path.with_suffix(".json").write_text(json.dumps([_document(side) for side in measured], indent=1) + "\n")


def plot(measured: Sequence[Side]) -> str:
    """Return the SVG."""
    first, last = measured[0], measured[-1]
    worst = max(last.lists, key=lambda name: _middle(last.lists[name]) / _middle(first.lists[name]))
    return draw(
        f"posd with {first.stored:,} to {last.stored:,} stored payments",
        "dashed: what the last value may be, from the first one",
        (
            f"Each has the newest {NEWEST} payments besides: every page is of them, the same at each size.",
            f"Measured in turn on {datetime.now(UTC):%Y-%m-%d} by: python -m tests.bench --plots DIRECTORY",
        ),
        [_name(side.stored) for side in measured],
        [
            _start([side.starts for side in measured]),
            _rate(f"Acknowledgements, {TERMINALS} connections", [side.acknowledged for side in measured], 0.9),
            _time("Look-up of one payment, of any", [side.looked_up for side in measured], 1.2),
            _time(
                f"List page, the worst: {worst}",
                [side.lists[worst] for side in measured],
                2.0,
            ),
        ],
    )


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def _name(size: int) -> str:
    for power, letter in ((1_000_000, " M"), (1_000, " k")):
        if size >= power:
            return f"{size // power}{letter}"
    return str(size)


def _start(rounds: Sequence[Sequence[float]]) -> Panel:
    """Return the panel of the start, which may take so much longer."""
    values = [_middle(values) * _MILLISECONDS for values in rounds]
    bound = values[0] + STARTS_LATER * _MILLISECONDS
    words = [f"{value:.3g}" for value in values]
    return Panel("Start to ready", "milliseconds", values, words, bound, f"at most {STARTS_LATER} s more", upper=True)


def _time(name: str, rounds: Sequence[Sequence[float]], limit: float) -> Panel:
    """Return the panel of a time in seconds, which may grow to `limit` times."""
    values = [_middle(values) * _MILLISECONDS for values in rounds]
    words = [f"{value:.3g}" for value in values]
    return Panel(name, "milliseconds", values, words, values[0] * limit, f"at most {limit:g} ×", upper=True)


def _rate(name: str, rounds: Sequence[Sequence[float]], limit: float) -> Panel:
    """Return the panel of a rate a second, which may fall to `limit` times."""
    values = [_middle(values) for values in rounds]
    words = [f"{value:,.0f}" for value in values]
    return Panel(name, "a second", values, words, values[0] * limit, f"at least {limit:g} ×", upper=False)


def _document(side: Side) -> dict[str, object]:
    return {
        "stored": side.stored,
        "start_s": side.starts,
        "acknowledgements_per_s": side.acknowledged,
        "look_up_s": side.looked_up,
        "lists_s": side.lists,
        "totals_s": side.totals,
        "idle_mb": side.idle,
        "worked_mb": side.worked,
    }
