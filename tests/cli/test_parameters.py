"""Values on the command line are read exactly, or refused with a clear message."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal

import click
import pytest

from posd.base.times import iso
from posd.cli.app import parameters


@pytest.mark.parametrize("text", ["0", "10", "10.5", "11.20", "0.1", "19999999.99", "999999999999.9999", "007.50"])
def test_an_amount_is_exactly_the_typed_decimal(text: str) -> None:
    assert str(parameters.amount(text)) == str(Decimal(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1,20",
        "1.",
        ".5",
        "1e3",
        "NaN",
        "Infinity",
        "1_000",
        " 1",
        "1.23456",
        "1234567890123",
        "٣",
        "1\n",
    ],
)
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not an amount"):
        parameters.amount(text)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-20T14:30:00Z", "2026-11-20T14:30:00.000Z"),
        ("2026-11-20T14:30:00.5+02:00", "2026-11-20T12:30:00.500Z"),
        ("2026-11-20T14:30-05:00", "2026-11-20T19:30:00.000Z"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_becomes_utc_with_milliseconds(text: str, utc: str) -> None:
    assert parameters.moment(text) == utc


def test_an_invalid_time_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="not a time"):
        parameters.moment("tomorrow")


def test_a_time_has_the_form_of_the_journal() -> None:
    now = datetime.now().astimezone().replace(microsecond=0)
    today, ago = parameters.moment("today"), parameters.moment("-90min")
    assert today == now.date() or datetime.now().astimezone().date() != now.date()
    assert isinstance(ago, str)
    assert timedelta(0) <= datetime.fromisoformat(ago) - (now - timedelta(minutes=90)) < timedelta(minutes=1)
    assert parameters.moment(f"{now.date()} 10:42") == iso(datetime.fromisoformat(f"{now.date()} 10:42"))
    clock = parameters.moment("10:42")
    assert clock == iso(datetime.combine(datetime.now().astimezone().date(), time(10, 42)))
    yesterday = parameters.moment("yesterday")
    assert isinstance(yesterday, date)
    assert yesterday < datetime.now().astimezone().date()


def test_an_amount_alone_is_a_sale_without_tax() -> None:
    assert parameters.amounts(Decimal("12.50"), {"iva": None, "subtotal_iva0": None}) == {
        "subtotal_iva0": Decimal("12.50")
    }


def test_the_parts_of_an_amount_are_sent_as_given() -> None:
    parts = {"subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20"), "tip": None}
    assert parameters.amounts(None, parts) == {"subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20")}


@pytest.mark.parametrize("parts", [(None, {}), (Decimal(1), {"subtotal_iva0": Decimal(1)})], ids=["none", "twice"])
def test_a_missing_amount_and_a_repeated_part_are_refused(parts: tuple[Decimal | None, dict[str, Decimal]]) -> None:
    with pytest.raises(click.UsageError):
        parameters.amounts(*parts)


COMMAND = click.Command("x")


def read(callback: object, *values: str) -> object:
    assert callable(callback)
    return callback(click.Context(COMMAND), click.Option(["--x"]), values)


def test_a_pair_keeps_everything_after_the_first_equals_sign() -> None:
    assert read(parameters.pairs, "a=1", "b=x=y", "c=") == {"a": "1", "b": "x=y", "c": ""}


def test_json_pairs_keep_numbers_exact() -> None:
    values = read(parameters.json_pairs, "is_deferred=true", "rate=10.10", 'name="x"')
    assert values == {"is_deferred": True, "rate": Decimal("10.10"), "name": "x"}
    assert isinstance(values, dict)
    assert str(values["rate"]) == "10.10"


@pytest.mark.parametrize("value", ["a", "=1", ""])
def test_an_invalid_pair_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter, match="KEY=VALUE"):
        read(parameters.pairs, value)


def test_an_option_that_is_not_json_is_refused_with_the_cure() -> None:
    with pytest.raises(click.BadParameter, match='name="text"'):
        read(parameters.json_pairs, "name=text")
