"""Requirements of a test on the machine. If a requirement is missing, the test is skipped before its first fixture."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

#: Packages of tools that a bare Debian may lack -> tools. The other tools have the name of their package.
_TOOLS = {
    "default-jdk-headless": "java javac",
    "faketime libfaketime": "faketime",
    "gcc libc6-dev": "cc",
    "golang-go": "go",
    "groff-base": "groff",
    "iproute2": "ip",
    "man-db": "man",
    "nodejs": "node",
    "php-cli": "php",
    "postgresql": "initdb postgres",
    "procps": "ps",
    "systemd": "systemd-analyze",
    "util-linux": "nsenter setpriv unshare",
}
_OWN = "avahi-daemon bash curl fish git jq mount nats-server npm openssl shellcheck zsh"
PACKAGES = {tool: tool for tool in _OWN.split()} | {tool: name for name, of in _TOOLS.items() for tool in of.split()}
PHP_CURL = next(Path("/usr/lib/php").glob("*/curl.so"), Path("curl.so"))
#: Directories of administrators' tools. PATH of some users lacks these directories.
SEARCH_PATH = os.pathsep.join(
    (
        os.environ.get("PATH", os.defpath),
        "/usr/sbin",
        "/sbin",
        # Debian puts these tools outside PATH
        *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)),
    )
)


def find(tool: str) -> str | None:
    """Return the path of a tool. Also search the directories of administrators' tools."""
    return shutil.which(tool, path=SEARCH_PATH)


def lacking(*tools: str, root: bool = False) -> str:
    """Return the missing tools with their Debian packages, or ""."""
    missing = ["root"] if root and os.geteuid() != 0 else []
    missing += [f"{tool} (Debian: {PACKAGES[tool]})" for tool in tools if find(tool) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def needs(*tools: str, root: bool = False) -> pytest.MarkDecorator:
    """Return a mark that skips a test if one of these tools is missing, or if the test needs root and runs as another
    user.
    """
    for tool in tools:
        if tool not in PACKAGES:
            raise ValueError(f"tests/rig/needs.py does not name the Debian package of {tool}")
    reason = lacking(*tools, root=root)
    return pytest.mark.skipif(bool(reason), reason=reason or "nothing is missing")


def needs_paths(brought_by: Mapping[Path, str]) -> pytest.MarkDecorator:
    """Return a mark that skips a test if one of these paths is missing. `brought_by`: path -> package with the path."""
    missing = [f"{path.name} ({how})" for path, how in brought_by.items() if not path.exists()]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}" if missing else "nothing is missing")


def needs_ipv6() -> pytest.MarkDecorator:
    """Return a mark that skips a test if this machine has no IPv6."""
    addresses = Path("/proc/net/if_inet6")
    missing = not addresses.exists() or f"{1:032x}" not in addresses.read_text()
    return pytest.mark.skipif(missing, reason="needs IPv6")
