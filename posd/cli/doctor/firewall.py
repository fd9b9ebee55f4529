"""Firewalls of this machine: hints only. What is there is told, and what has to pass; no rule is judged for certain.

Nothing is started that would load a kernel module: a tool is asked only where its tables are in use already.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from posd.cli.doctor.context import Shop
from posd.cli.doctor.findings import Findings, ok, warning

#: How long a tool may take to list its rules, in seconds.
TOOL_SECONDS = 5.0
#: Where the tools are for root; an ordinary user's PATH may lack it.
PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin"


def check(shop: Shop) -> Findings:
    """Tell which firewall there is, and what it has to let in."""
    port = str(shop.settings.webhooks.port) if shop.config is not None else ""
    wanted = f"TCP port {port or '8443 (webhooks.listen)'}"
    if shop.config is None or shop.settings.discovery.enabled:
        wanted += " and UDP port 5353 (mDNS)"
    todo = f"see that {wanted} may come in from the terminals' network"
    found = False
    for name, how, rules in _firewalls():
        found = True
        if port and port in rules:
            yield ok(name, f"{how}; its rules name port {port}", todo)
        else:
            yield warning(name, f"{how}: it may keep the terminals out", todo)
    if not found:
        yield ok(
            "this machine", "no firewall was found here; one in the network (router, WLAN) cannot be seen from here"
        )


def _firewalls() -> Iterator[tuple[str, str, str]]:
    """Yield name, what was seen, and the rules as text where this user may read them."""
    if "ENABLED=yes" in _read(Path("/etc/ufw/ufw.conf")):
        yield "ufw", "ufw is switched on", _read(Path("/etc/ufw/user.rules"))
        return  # it writes the tables below
    if Path("/run/firewalld.pid").exists():
        yield "firewalld", "firewalld runs", _run("firewall-cmd", "--list-all")
        return
    if _read(Path("/proc/net/ip_tables_names")).split():
        rules = _run("iptables", "-S", "INPUT")
        if _filters(rules):
            yield "iptables", "iptables filters what comes in", rules
    if Path("/sys/module/nf_tables").exists():
        rules = _run("nft", "list", "ruleset")
        if "hook input" in rules and _filters(rules):
            yield "nftables", "nftables filters what comes in", rules


def _filters(rules: str) -> bool:
    return any(word in rules.lower() for word in (" drop", " reject"))


def _run(tool: str, *arguments: str) -> str:
    """Return what a tool prints, "" where it is not there or this user may not ask it."""
    path = shutil.which(tool, path=PATH)
    if path is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - one of three tools of the system, with fixed arguments
            [path, *arguments], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
        return done.stdout
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
