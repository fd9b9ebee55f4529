"""The terminal profile: the table, the placeholders of paths, and rows of the configuration."""

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posd.config.profile import (
    ACCESS_MODES,
    EDITIONS,
    AccessMode,
    OperationRow,
    path_fault,
    pointer_fault,
    replace_row,
    resolve_path,
)
from tests.rig.tables import every

OPERATIONS = (
    "charge",
    "pre-auth",
    "capture",
    "re-auth",
    "post-tip",
    "void",
    "refund",
    "abort",
    "search",
    "print",
    "print-job",
)
ROWS = [(mode, operation) for mode in ACCESS_MODES for operation in OPERATIONS]


@pytest.mark.parametrize("access_mode", ACCESS_MODES)
def test_the_table_has_every_operation_and_confirms_only_the_charge(access_mode: AccessMode) -> None:
    table = EDITIONS["classic"][access_mode]
    assert tuple(table) == OPERATIONS
    assert [operation for operation, row in table.items() if row.confirmed] == ["charge"]


def test_charge_has_the_row_of_the_terminal_api() -> None:
    for edition in EDITIONS.values():
        assert edition["local"]["charge"] == OperationRow("POST", "/terminal/v1/async/charge", confirmed=True)
        assert edition["cloud"]["charge"] == OperationRow(
            "POST", "/terminal/v1/{terminal_serial}/async/charge", confirmed=True
        )


@every(("access_mode", "operation"), ROWS)
def test_default_paths_pass_the_rules_for_configured_paths(access_mode: AccessMode, operation: str) -> None:
    assert path_fault(operation, access_mode, EDITIONS["classic"][access_mode][operation].path) is None


@every(
    ("operation", "access_mode", "path", "fault"),
    [
        ("charge", "local", "", "not an absolute path"),
        ("charge", "local", "terminal/v1", "not an absolute path"),
        ("charge", "local", "//other.example/x", "not an absolute path"),
        ("charge", "local", "https://other.example/x", "not an absolute path"),
        ("charge", "local", "/a b", "not an absolute path"),
        ("charge", "local", "/a\r\nX: y", "not an absolute path"),
        ("charge", "local", "/a#b", "not an absolute path"),
        ("charge", "local", "/é", "not an absolute path"),
        ("charge", "local", "/a{", "not an absolute path"),
        ("charge", "local", "/a}", "not an absolute path"),
        ("charge", "local", "/{serial}", "unknown placeholder {serial}; known here: {terminal_serial}"),
        ("charge", "local", "/{}", "unknown placeholder {}"),
        ("charge", "local", "/{print_job_id}", "unknown placeholder {print_job_id}"),
        ("charge", "cloud", "/terminal/v1/async/charge", "lacks the placeholder {terminal_serial}"),
        ("print-job", "local", "/job", "lacks the placeholder {print_job_id}"),
        ("print-job", "cloud", "/job", "lacks the placeholder {print_job_id}, {terminal_serial}"),
        ("print-job", "local", "/jobs/{print_job_id}", None),
        ("search", "local", "/search?id={client_transaction_id}", None),
        ("abort", "local", "/abort/{client_transaction_id}", "unknown placeholder {client_transaction_id}"),
        ("charge", "local", "/{terminal_serial}/charge?mode=a|b&x=%20", None),
    ],
)
def test_an_invalid_path_is_refused_with_the_reason(
    operation: str, access_mode: AccessMode, path: str, fault: str | None
) -> None:
    found = path_fault(operation, access_mode, path)
    assert (found is None) if fault is None else (found is not None and fault in found)


@pytest.mark.parametrize(
    ("pointer", "usable"),
    [("", True), ("/data", True), ("/data/0/x~1y~0z", True), ("/", True), ("data", False), ("/a~2", False)],
)
def test_an_invalid_pointer_is_refused_with_the_reason(pointer: str, usable: bool) -> None:
    assert (pointer_fault(pointer) is None) == usable


@example("a/b")
@given(st.text(min_size=1).filter(lambda text: text.strip(".")))
def test_a_value_stays_inside_its_placeholder(value: str) -> None:
    """No serial and no print job id adds a segment, a parameter or a second request line."""
    value = value.encode("utf-8", "replace").decode()
    row = EDITIONS["classic"]["cloud"]["print-job"]
    target = resolve_path(row, terminal_serial=value, print_job_id=value)
    parts = urlsplit(target)
    assert target.isascii()
    assert target.isprintable()
    assert " " not in target
    assert [unquote(part) for part in parts.path.split("/")] == ["", "terminal", "v1", value, "print_job"]
    assert parts.fragment == ""
    name, _, encoded = parts.query.partition("=")
    assert (name, unquote(encoded)) == ("print_job_id", value)
    assert "&" not in parts.query


@pytest.mark.parametrize("serial", ["", ".", ".."])
def test_a_value_that_would_change_the_path_is_refused(serial: str) -> None:
    with pytest.raises(ValueError, match="needs a terminal_serial"):
        resolve_path(EDITIONS["classic"]["cloud"]["charge"], terminal_serial=serial)


def test_a_path_without_placeholders_needs_no_values() -> None:
    assert resolve_path(EDITIONS["classic"]["local"]["charge"]) == "/terminal/v1/async/charge"


CHARGE, ABORT, SEARCH = (EDITIONS["classic"]["local"][name] for name in ("charge", "abort", "search"))


@pytest.mark.parametrize(
    ("row", "given_values", "expected"),
    [
        (CHARGE, {}, CHARGE),
        (CHARGE, {"path": CHARGE.path, "method": None}, CHARGE),
        (CHARGE, {"path": "/other"}, OperationRow("POST", "/other", confirmed=False)),
        (CHARGE, {"method": "GET"}, OperationRow("GET", CHARGE.path, confirmed=False)),
        (CHARGE, {"path": "/other", "confirmed": True}, OperationRow("POST", "/other", confirmed=True)),
        (CHARGE, {"confirmed": False}, OperationRow("POST", CHARGE.path, confirmed=False)),
        (ABORT, {"confirmed": True}, OperationRow("GET", ABORT.path, confirmed=True)),
        (ABORT, {"path": "/other"}, OperationRow("GET", "/other", confirmed=False)),
        (SEARCH, {"pointer": "/data"}, OperationRow("POST", SEARCH.path, pointer="/data")),
    ],
)
def test_the_configuration_replaces_a_row(
    row: OperationRow, given_values: dict[str, object], expected: OperationRow
) -> None:
    assert replace_row(row, **given_values) == expected  # type: ignore[arg-type]
