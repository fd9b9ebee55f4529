"""A strict parser of Prometheus' text format 0.0.4. Every scraper accepts the texts that this parser accepts."""

import re
from dataclasses import dataclass, field

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
KINDS = {"counter", "gauge", "histogram"}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """A metric with its two comments and its samples. `samples`: (name, labels) -> value."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    @property
    def labels(self) -> set[str]:
        return {name for _, pairs in self.samples for name, _ in pairs if name != "le"}


def read(text: str) -> dict[str, Family]:
    """Parse an exposition. Raise AssertionError if any part is wrong."""
    assert text.endswith("\n"), "the last line has no line end"
    families: dict[str, Family] = {}
    lines = iter(text[:-1].split("\n"))
    current, told = "", ""
    for line in lines:
        if line.startswith("# HELP "):
            name, _, told = line.removeprefix("# HELP ").partition(" ")
            assert NAME.fullmatch(name), line
            assert told, line
            assert name not in families, f"{name} appears twice"
            kind_line = next(lines, "")
            assert kind_line.startswith(f"# TYPE {name} "), (
                f"the line after the HELP of {name} is not its TYPE: {kind_line}"
            )
            kind = kind_line.rsplit(" ", 1)[1]
            assert kind in KINDS, kind_line
            families[name], current = Family(kind, told), name
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"the line is not a sample: {line!r}"
        assert current, f"the sample has no TYPE before it: {line}"
        family = families[current]
        allowed = (
            {f"{current}{end}" for end in ("_bucket", "_sum", "_count")} if family.kind == "histogram" else {current}
        )
        assert found["name"] in allowed, f"{line} is in the block of {current}"
        key = found["name"], _labels(found["labels"] or "")
        assert key not in family.samples, f"{line} appears twice"
        family.samples[key] = float(found["value"])
    for name, family in families.items():
        _check(name, family)
    return families


def _labels(text: str) -> Labels:
    pairs, at = [], 0
    while at < len(text):
        found = LABEL.match(text, at)
        assert found, f"the text is not a list of labels: {text!r}"
        pairs.append((found[1], found[2]))
        at = found.end()
        assert (found[3] == ",") == (at < len(text)), f"the labels have a comma too many or too few: {text!r}"
    assert len({name for name, _ in pairs}) == len(pairs), f"a label appears twice: {text!r}"
    return tuple(pairs)


def _check(name: str, family: Family) -> None:
    assert family.samples, f"{name} has no samples"
    assert (family.kind == "counter") == name.endswith("_total"), f"{name} has the unknown type {family.kind}"
    assert len({frozenset(dict(pairs)) - {"le"} for _, pairs in family.samples}) == 1, (
        f"the samples of {name} differ in the names of their labels"
    )
    if family.kind == "counter":
        assert min(family.samples.values()) >= 0, f"{name} has a negative value"
    if family.kind == "histogram":
        _check_histogram(name, family)


def _check_histogram(name: str, family: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, pairs), value in family.samples.items():
        if sample == f"{name}_bucket":
            rest = tuple(pair for pair in pairs if pair[0] != "le")
            series.setdefault(rest, []).append((float(dict(pairs)["le"]), value))
    for rest, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(set(bounds)), f"{name}{rest}: the values of le do not ascend"
        assert bounds[-1] == float("inf"), f"{name}{rest} has no +Inf"
        assert list(counts) == sorted(counts), f"{name}{rest} is not cumulative"
        assert counts[-1] == family.samples[f"{name}_count", rest], (
            f"{name}{rest}: the bucket +Inf differs from the count"
        )
        assert (f"{name}_sum", rest) in family.samples, f"{name}{rest} has no sum"
