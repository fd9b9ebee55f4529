"""Checks of the role of packaging/ansible. ansible-core applies the role on a booted Debian in check mode, for real,
and a second time.
"""

import re
import shutil
import sys
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Done, Machine, host
from tests.system.report import Report

ROLES = packages.CHECKOUT / "packaging" / "ansible"
KEY = "ab" * 32
PLAY = """
- hosts: localhost
  roles:
    - role: posd
      posd_package: /root/{package}
      posd_config: |
        [merchant]
        timezone = "UTC"
      posd_terminals:
        - {{serial: SN-0001, public_key_sha256: "{key}"}}
        - {{serial: SN-0002, public_key_sha256: "{key}", base_url: "https://192.0.2.1:6869"}}
      posd_tills: [till]
      posd_operators: [ana]
"""


def run(report: Report, scratch: Path) -> None:
    """Run the part."""
    with Machine(report, scratch) as machine:
        with report.check("a Debian with Python and ansible-core is booted", needed=True):
            _lay_out(machine, packages.given(scratch), scratch)
            machine.boot()
        with report.check("a dry run on a machine without posd reports the changes and makes none"):
            assert _changed(machine, "--check") > 0
            assert not (machine.root / "etc/posd").exists()
        with report.check("the role installs posd, and posd runs with the terminals of the play"):
            assert _changed(machine) > 0
            assert "SN-0001, SN-0002" in machine.out("posd", "config", "check", user="posd")
            assert {"SN-0001", "SN-0002"} <= set(machine.out("posd", "terminals").split())
            assert "posd-till" in machine.out("id", "-nG", "till")
            assert "posd-admin" in machine.out("id", "-nG", "ana")
        with report.check("a second run, dry or not, changes nothing"):
            before = machine.show("posd.service", "MainPID", "StateChangeTimestampMonotonic")
            assert _changed(machine, "--check") == 0
            assert _changed(machine) == 0
            assert machine.show("posd.service", "MainPID", "StateChangeTimestampMonotonic") == before
        with report.check("a reload applies a change; the role refuses a wrong change and writes nothing"):
            play = (machine.root / "root/play.yml").read_text()
            machine.write("/root/play.yml", play.replace('"UTC"', '"Europe/Madrid"'))
            assert _changed(machine) == 2
            kept = machine.out("cat", shop.CONFIG)
            machine.write("/root/play.yml", play.replace('"UTC"', '"Nowhere"'))
            refused = _play(machine)
            assert refused.returncode != 0
            assert "is not a known time zone" in refused.stdout
            assert machine.out("cat", shop.CONFIG) == kept


def _lay_out(machine: Machine, package: Path, scratch: Path) -> None:
    """Install the packages of a run before the machine is booted, because a booted machine has no network."""
    machine.make()
    machine.install("python3", "passwd", "systemd", "init-system-helpers")
    # the role also installs what the package recommends
    machine.run("apt-get", "install", "-y", "--download-only", machine.put(package), seconds=600)
    libraries = scratch / "ansible-core"
    if not libraries.exists():
        host(sys.executable, "-m", "pip", "-q", "install", "--target", str(libraries), "ansible-core", seconds=600)
    shutil.copytree(libraries, machine.root / "opt/ansible")
    shutil.copytree(ROLES, machine.root / "root/roles")
    machine.write("/root/play.yml", PLAY.format(package=package.name, key=KEY))


def _play(machine: Machine, *options: str) -> Done:
    variables = ("PYTHONPATH=/opt/ansible", "ANSIBLE_ROLES_PATH=/root/roles", "ANSIBLE_NOCOLOR=1", "HOME=/root")
    command = ("python3", "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local", "/root/play.yml")
    return machine.run("env", *variables, *command, *options, check=False, seconds=600)


def _changed(machine: Machine, *options: str) -> int:
    """Run the play. Return the number of tasks that changed something, or would change it in check mode."""
    done = _play(machine, *options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    found = re.search(r"changed=(\d+)", done.stdout)
    assert found
    return int(found[1])
