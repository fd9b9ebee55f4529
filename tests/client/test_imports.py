"""Modules that the client loads. The client loads nothing else of posd, and loads the HTTP client only at the first
use.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import posd.client

ENDING = """
for name in sorted(sys.modules):
    top = name.partition(".")[0]
    if name.startswith("posd.") or top not in sys.stdlib_module_names:
        print(name)
"""


def loaded(script: str) -> set[str]:
    """Run a script. Return the modules that the program has loaded from outside the standard library."""
    command = [sys.executable, "-I", "-c", f"import sys\nbefore = set(sys.modules)\n{script}\n{ENDING}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())


def of_posd(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("posd.")}


def test_importing_the_client_loads_neither_the_http_client_nor_asyncio() -> None:
    script = "import posd.client\nassert 'asyncio' not in sys.modules"
    names = loaded(script)
    assert {name for name in of_posd(names) if not name.startswith("posd.client")} == set()
    assert not {"httpx2", "httpcore2", "msgspec", "click", "rich"} & names


@pytest.mark.quick(1)
@pytest.mark.parametrize("client", ["Posd", "AsyncPosd"])
def test_using_the_client_loads_nothing_else_of_posd(client: str) -> None:
    names = loaded(f"from posd.client import {client}\n{client}('/none')")
    assert "httpx2" in names
    assert {name for name in of_posd(names) if not name.startswith("posd.client")} == set()
    assert not {"msgspec", "starlette", "hypercorn", "structlog"} & names


def test_every_name_can_be_imported_and_users_get_the_types() -> None:
    assert sorted(posd.client.__all__) == sorted(set(posd.client.__all__))
    for name in posd.client.__all__:
        assert getattr(posd.client, name) is not None
    with pytest.raises(AttributeError, match="Nothing"):
        _ = posd.client.Nothing
    assert (Path(posd.client.__file__).parent / "py.typed").exists()
