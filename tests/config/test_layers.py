"""Several configuration files: the precedence, and the file that a problem names."""

from pathlib import Path

import pytest

from posd.config import Config, ConfigError, load
from posd.config.layers import FOLDER, Layers

FIRST = """
[merchant]
id = "M-1"

[webhooks]
listen = "127.0.0.1:8443"
advertise_host = "192.0.2.1"

[discovery]
service_types = ["_one._tcp.local."]

[[terminals]]
serial = "SN-1"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    file = tmp_path / "config.toml"
    file.write_text(FIRST)
    return file


def further(file: Path, **texts: str) -> None:
    for name, text in texts.items():
        (file.parent / FOLDER / f"{name}.toml").write_text(text)


def problems(file: Path) -> list[tuple[str, int | None, str, str]]:
    with pytest.raises(ConfigError) as caught:
        load(file)
    return [(Path(item.file).name, item.line, item.key, item.reason) for item in caught.value.problems]


def test_later_files_add_terminals_and_replace_other_values(file: Path) -> None:
    further(
        file,
        b='[webhooks]\nlisten = "127.0.0.1:9444"\n[[terminals]]\nserial = "SN-3"\n',
        a='[webhooks]\nlisten = "127.0.0.1:9443"\n[discovery]\nservice_types = ["_two._tcp.local."]\n'
        '[[terminals]]\nserial = "SN-2"\n',
    )
    (file.parent / FOLDER / ".c.toml").write_text("no toml")  # an editor has left this file
    (file.parent / FOLDER / "c.toml.dpkg-old").write_text("no toml")
    config = load(file)
    assert config.file == file
    assert (config.merchant.id, config.webhooks.advertise_host) == ("M-1", "192.0.2.1")
    assert str(config.webhooks.listen) == "127.0.0.1:9444"
    assert list(config.discovery.service_types) == ["_two._tcp.local."]
    assert [item.serial for item in config.terminals] == ["SN-1", "SN-2", "SN-3"]


def test_a_file_in_place_of_the_folder_is_an_error(file: Path) -> None:
    (file.parent / FOLDER).rmdir()
    (file.parent / FOLDER).write_text("no folder")
    ((name, _, _, reason),) = problems(file)
    assert (name, reason) == (FOLDER, "cannot be read (Not a directory)")


def test_relative_paths_start_at_the_first_file(file: Path) -> None:
    (file.parent / "ca.pem").touch()
    further(file, a='[database]\npath = "state/posd.db"\n')
    assert load(file).database.path == file.parent / "state" / "posd.db"


def test_each_problem_names_its_own_place(file: Path) -> None:
    further(
        file,
        a='[[terminals]]\nserial = "SN-2"\nport = 1\n\n[[terminals]]\nserial = 7\n',
        b='[webhooks]\n\nlisten = "nowhere"\n[merchant]\nid = "M-2"\n[[terminals]]\nbrand = "x"\n',
    )
    assert [(name, line, key) for name, line, key, _ in problems(file)] == [
        ("b.toml", 3, "webhooks.listen"),
        ("a.toml", 3, "terminals[0].port"),
        ("a.toml", 6, "terminals[1].serial"),
        ("b.toml", 7, "terminals[0].brand"),
        ("b.toml", 6, "terminals[0].serial"),
    ]


def test_two_terminals_of_one_serial_are_found_across_files(file: Path) -> None:
    further(file, a='[[terminals]]\nserial = "SN-1"\n')
    (found,) = problems(file)
    assert found[:3] == ("a.toml", 2, "terminals[0].serial")
    assert found[3] == f"'SN-1' is the serial of terminals[0] of {file} too"


def test_all_files_that_cannot_be_read_are_named_at_once(file: Path) -> None:
    file.write_bytes(b"\xff")
    further(file, a="= 1", b="[merchant]")
    assert [(name, line) for name, line, _, _ in problems(file)] == [("config.toml", None), ("a.toml", 1)]


def test_the_first_file_may_be_missing_if_other_files_exist(file: Path) -> None:
    file.unlink()
    assert problems(file)[0][3] == "does not exist", "posd must not run on defaults because of a mistyped file name"
    further(file, a='[merchant]\nid = "M-9"\n')
    assert load(file).merchant.id == "M-9"


def test_a_machine_without_any_configuration_runs_on_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("posd.config.layers.USUAL", tmp_path / "config.toml")
    assert isinstance(load(tmp_path / "config.toml"), Config)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("terminals[0].serial", ("first", "terminals[0].serial")),
        ("terminals[1].serial", ("second", "terminals[0].serial")),
        ("terminals[2].serial", ("first", "terminals[2].serial")),  # no file has this section
        ("terminals[1]", ("second", "terminals[0]")),
        ("merchant.id", ("second", "merchant.id")),
        ("merchant.timezone", ("second", "merchant.timezone")),  # the problem names the last file with the section
        ("profile.charge.path", ("first", "profile.charge.path")),
        ('"a b".c', ("first", '"a b".c')),
    ],
)
def test_each_key_is_reported_with_the_file_that_sets_it(key: str, found: tuple[str, str]) -> None:
    layers = Layers(Path("first"))
    layers.add(Path("first"), '["a b"]\nc = 1\n[merchant]\nid = "1"\n[[terminals]]\nserial = "1"\n')
    layers.add(Path("second"), '[merchant]\nid = "2"\n[[terminals]]\nserial = "2"\n')
    file, own = layers.origin(key)
    assert (str(file), own) == found
    assert layers.document["merchant"] == {"id": "2"}
    assert layers.files[0].document["merchant"] == {"id": "1"}
