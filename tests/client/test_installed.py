"""The client without the daemon. The package posd-client is made from the same sources and has its own environment."""

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.recipes.test_readme import block
from tests.rig.commands import PATIENCE, read_until, started_posd

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel by the command of the Makefile, with the installed build backend."""
    directory = tmp_path_factory.mktemp("wheel")
    [command] = re.findall(r"^client:\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    [*pip, _, _, place] = command.replace("$(BIN)/pip", f"{sys.executable} -m pip").split()
    subprocess.run([*pip, "-w", str(directory), "--no-build-isolation", "--no-index", place], cwd=ROOT, check=True)
    [wheel] = directory.iterdir()
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with only the wheel and its requirements."""
    home = tmp_path_factory.mktemp("till")
    venv.create(home)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True)
    [libraries] = home.glob("lib/python*/site-packages")
    for name in required(requirements(wheel)):
        for file in distribution(name).files or ():
            if ".." not in file.parts:  # commands are not part of the wheel
                (libraries / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), libraries / file)
    return python


def requirements(wheel: Path) -> list[Requirement]:
    """Return the requirements of a wheel."""
    with ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    return [Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist: ")]


def required(asked: list[Requirement]) -> set[str]:
    """Return the names of all installed packages that these packages require."""
    found: set[str] = set()
    while asked:
        one = asked.pop()
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(one.name)
            asked += map(Requirement, distribution(one.name).requires or ())
    return found


def test_the_package_has_the_sources_of_the_client_and_requires_only_the_http_client(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    sources = [ROOT / "posd" / "__init__.py", *(ROOT / "posd" / "client").iterdir()]
    assert packed == {str(path.relative_to(ROOT)): path.read_bytes() for path in sources if path.is_file()}
    of_posd = [Requirement(line) for line in distribution("posd").requires or ()]
    assert requirements(wheel) == [one for one in of_posd if one.name == "httpx2"]
    assert wheel.name.startswith(f"posd_client-{distribution('posd').version}-")


def test_the_installed_client_charges_on_a_real_daemon(python: Path, tmp_path: Path) -> None:
    alone = "import posd.client, importlib.util as u; print([u.find_spec(n) for n in ('posd.cli', 'msgspec', 'click')])"
    said = subprocess.run([python, "-I", "-c", alone], capture_output=True, text=True, check=True).stdout
    assert said == "[None, None, None]\n"
    with started_posd("demo", "--keep", "--speed", "50", environment={"TMPDIR": str(tmp_path)}) as demo:
        try:
            socket = read_until(demo, "export POSD_SOCKET=").splitlines()[-1].partition("=")[2]
            done = subprocess.run(
                [python, "-"],
                input=block("python"),
                env={"POSD_SOCKET": socket, "PATH": os.defpath},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert done.stdout.endswith("PAID 11.20\n(it is booked)\n")
        finally:
            demo.terminate()
            demo.communicate(timeout=PATIENCE)
