"""Content of the Debian package. python -m tests.system tests its installation and its units."""

import os
import re
import runpy
import subprocess
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from posd import RELEASED
from tests.rig.needs import needs

ROOT = Path(__file__).parents[1]
BUILD = runpy.run_path(str(ROOT / "packaging" / "build-deb"))
#: Limit for the exposure of a service by systemd-analyze security, from 0 to 10.
EXPOSURE = 1.5


def services() -> list[str]:
    """Return the units of the package and of head office."""
    found = [*(ROOT / "systemd").glob("*.service"), *(ROOT / "packaging" / "collect").glob("*.service")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", services())
def test_a_service_has_only_the_rights_that_it_needs(unit: str) -> None:
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(ROOT / unit)],
        capture_output=True,
        text=True,
        check=True,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    ).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert found, told
    assert float(found[1]) <= EXPOSURE, told


@pytest.mark.parametrize("script", ["preinst", "postinst", "prerm", "postrm"])
def test_a_script_of_the_package_is_plain_sh(script: str) -> None:
    subprocess.run(["sh", "-n", str(ROOT / "packaging" / "debian" / script)], check=True)


@needs("shellcheck")
@pytest.mark.parametrize("script", ["preinst", "postinst", "prerm", "postrm"])
def test_shellcheck_finds_nothing_in_a_script_of_the_package(script: str) -> None:
    subprocess.run(["shellcheck", "-s", "sh", str(ROOT / "packaging" / "debian" / script)], check=True)


def test_an_upgrade_removes_the_oldest_backups_of_upgrades_and_no_other_file(tmp_path: Path) -> None:
    """The files may have any names. The script does not need root."""
    tools, backups = tmp_path / "tools", tmp_path / "backups"
    for folder in (tools, backups):
        folder.mkdir()
    (tools / "runuser").write_text(f'#!/bin/sh\necho "$2" > {tmp_path}/user\nshift 3\nexec "$@"\n')
    (tools / "runuser").chmod(0o755)
    other = tmp_path / "other.db"  # the file is in the folder in which dpkg runs
    other.write_text("")
    names = [f"before-upgrade-{name}.db" for name in ("3", "2", "1 0", "x\n1 other", "0")]
    for age, name in enumerate([*names, "posd-20261120T104203Z.db"]):
        (backups / name).write_text("")
        os.utime(backups / name, (1_000_000 - age, 1_000_000 - age))
    prerm = ROOT / "packaging" / "debian" / "prerm"
    subprocess.run(
        ["sh", "-c", '. "$0"; remove_old_backups "$1"', prerm, backups],
        cwd=tmp_path,
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        check=True,
    )
    assert {path.name for path in backups.iterdir()} == {*names[:2], "posd-20261120T104203Z.db"}
    assert other.exists()
    assert (tmp_path / "user").read_text() == "posd\n"


def test_every_unit_that_starts_automatically_is_enabled_and_later_purged() -> None:
    enabled = {
        path.name
        for kind in ("service", "socket", "timer")
        for path in (ROOT / "systemd").glob(f"*.{kind}")
        if "[Install]" in path.read_text()
    }
    for script in ("postinst", "postrm"):
        text = (ROOT / "packaging" / "debian" / script).read_text()
        assert set(re.findall(r"\bposd[\w-]*\.(?:service|socket|timer)\b", text)) >= enabled, script


def test_a_stop_of_the_service_closes_the_socket_and_a_restart_does_not() -> None:
    """A stop closes the socket. A restart or a crash must not close the socket. No unit may therefore have a setting
    that closes the socket at a restart.
    """
    socket, service = ((ROOT / "systemd" / name).read_text() for name in ("posd.socket", "posd.service"))
    assert "\nStopWhenUnneeded=yes\n" in socket
    assert "[Install]" not in socket, "enabled by itself it is always needed"
    assert "\nRequires=posd.socket\n" in service
    for setting in ("PartOf=", "BindsTo=", "PropagatesStopTo=", "StopPropagatedFrom=", "Also="):
        assert f"\n{setting}" not in socket + service, setting


def test_the_libraries_of_the_package_are_those_that_posd_requires() -> None:
    written = (ROOT / "packaging" / "requirements.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", written, re.MULTILINE))
    assert written.count("--hash=sha256:") >= len(locked)
    for python in BUILD["PYTHONS"]:
        assert python in written.splitlines()[0], "run packaging/lock"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for line in [*project["dependencies"], *extras["relay"], *extras["watch"]]:
        asked = Requirement(line)
        version = locked.get(canonicalize_name(asked.name))
        assert version is not None, f"{asked.name} is missing: run packaging/lock"
        assert asked.specifier.contains(version), f"{asked.name} {version} is not {asked.specifier}: run packaging/lock"


@pytest.mark.parametrize(
    ("python", "debian"),
    [
        ("1.0", "1.0"),
        ("1.0rc2", "1.0~rc2"),
        ("1.0.dev3", "1.0~dev3"),
        ("1.2.3b1", "1.2.3~b1"),
        ("1.0.post1", "1.0.post1"),
    ],
)
def test_debian_and_python_order_versions_in_the_same_way(python: str, debian: str) -> None:
    assert BUILD["debian"](python) == debian


def test_the_command_for_head_offices_server_is_where_its_document_says() -> None:
    target = BUILD["OF_FLEET"]["packaging/nats/lanes"]
    assert Path(target).parent == Path(BUILD["HOME"], "bin")  # this folder holds the programs that can be run
    assert f"`/{target}`" in (ROOT / "docs" / "guides" / "fleet.md").read_text()


def test_a_document_of_the_package_links_only_to_files_of_the_package() -> None:
    laid = set(BUILD["packaged"]())
    documents = [path for path in laid if path.suffix == ".md"]
    assert len(documents) > 10
    links = 0
    for path in documents:
        for link in re.findall(r"\]\(([^)#\s]+)", BUILD["without_lost_links"](path, laid)):
            if "://" not in link:
                links += 1
                assert Path(os.path.normpath(path.parent / link)) in laid, (path, link)
    assert links > 50


def test_files_of_head_office_and_evidence_are_not_in_the_package_of_a_till() -> None:
    names = {str(path.relative_to(ROOT)) for path in BUILD["packaged"]()}
    assert names.isdisjoint({*BUILD["OF_FLEET"], *(f"docs/{name}.md" for name in BUILD["FOR_DEVELOPERS"])})
    assert not any(name.startswith("docs/evidence/") for name in names)
    assert all((ROOT / f"docs/{name}.md").exists() for name in BUILD["FOR_DEVELOPERS"])


def test_every_unit_names_its_manual_page() -> None:
    for path in [*(ROOT / "systemd").glob("posd*.[st]*"), *(ROOT / "packaging" / "collect").glob("*.service")]:
        if path.suffix in (".service", ".socket", ".timer"):
            assert "\nDocumentation=man:posd" in path.read_text(), path.name


def test_posd_imports_nothing_that_the_package_omits() -> None:
    names = {name.rstrip("*") for name in BUILD["UNUSED"]} | {"rich.markdown", "rich.syntax", "rich.traceback"}
    left_out = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(map(re.escape, names))})\b", re.MULTILINE)
    assert left_out.search("    from rich.syntax import Syntax")
    for path in (ROOT / "posd").rglob("*.py"):
        assert not left_out.search(path.read_text()), path


def test_the_build_day_is_not_before_the_newest_day_of_the_changelog() -> None:
    """posd distrusts a clock that is before the build day, so the build day must not be in the future."""
    text = (ROOT / "CHANGELOG.md").read_text()
    named = [date.fromisoformat(day) for day in re.findall(r"^## .*(\d{4}-\d\d-\d\d)$", text, re.MULTILINE)]
    made = date.fromisoformat(RELEASED)
    assert max([made, *named]) == made <= datetime.now(UTC).date()
