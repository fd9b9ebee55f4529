"""A second system: a bare Debian on an overlay, booted by a real systemd.

mmdebstrap makes the bare system of each release once, from the mirror of this machine, and keeps it in CACHE. A test
changes only the layer above the bare system. The test removes this layer afterwards.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.system.report import Report, Skipped

CACHE = Path(os.environ.get("POSD_SYSTEM_CACHE") or "/var/cache/posd-system-tests")
#: Packages that a minimal installation has, and that mmdebstrap's smallest variant lacks. Python is not in the list,
#: because posd's package must depend on Python.
INCLUDED = "systemd,systemd-sysv,dbus,iproute2"
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "SYSTEMD_COLORS": "0",
    "COLUMNS": "160",
}
#: Time limit of a command or a wait, in seconds. A slow machine needs far less time. A stuck command fails.
STUCK_SECONDS = 300.0

Done = subprocess.CompletedProcess[str]


def host(*command: str, seconds: float = STUCK_SECONDS) -> Done:
    """Run a command on this machine. Raise AssertionError with the output if the command fails."""
    return _run(command, check=True, seconds=seconds)


def need(command: str, package: str) -> None:
    """Install a Debian package on this machine if a command is missing. Raise Skipped."""
    if shutil.which(command):
        return
    try:
        host("apt-get", "update", "-q")
        host("apt-get", "install", "-yq", "--no-install-recommends", package, seconds=600)
    except (AssertionError, OSError) as error:
        raise Skipped(f"{command} is missing, and {package} cannot be installed: {error}") from error


def until(what: Callable[[], bool], means: str, seconds: float = STUCK_SECONDS) -> None:
    """Check until a condition is true. Raise AssertionError after the time limit."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, f"{means}: this did not happen within {seconds:g} s"
        time.sleep(0.1)


def bare(suite: str) -> Path:
    """Return the directory of a bare Debian. The first use makes the directory."""
    tree = CACHE / f"debian-{suite}"
    if not tree.exists():
        fresh = CACHE / f"{suite}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"          a bare Debian is made in {tree}; this takes some minutes, once", flush=True)
        variant = ("--variant=minbase", f"--include={INCLUDED}")
        host("mmdebstrap", "--quiet", *variant, suite, str(fresh), _mirror(), seconds=1800)
        fresh.rename(tree)
    return tree


def _mirror() -> str:
    """Return the mirror of this machine's own packages."""
    files = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
    for word in (word for file in files if file.exists() for word in file.read_text().split()):
        if word.startswith("http") and word.rstrip("/").endswith("/debian"):
            return word
    raise Skipped("no Debian mirror in /etc/apt")


class Machine:
    """A Debian on an overlay, until the end of the block. Commands run in a chroot, or in the booted system."""

    def __init__(self, report: Report, scratch: Path, of: str = "") -> None:
        """`of`: name of a second machine of a part."""
        part = f"{report.part}{of}"
        self.note = report.note
        self.name = f"posd-{part}-{os.getpid()}"
        self._directory = scratch / f"{part}-{report.suite}"
        self.root = self._directory / "root"
        self._console = self._directory / "console.log"
        self._suite = report.suite
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._groups: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Power the machine off and remove its files."""
        if self._nspawn is not None:
            self.power_off()
        if self.root.is_mount():
            host("umount", str(self.root))
        shutil.rmtree(self._directory, ignore_errors=True)

    def make(self) -> None:
        """Mount the overlay, and read the list of packages. Raise Skipped."""
        need("mmdebstrap", "mmdebstrap")
        need("systemd-nspawn", "systemd-container")
        for name in ("upper", "work", "root"):
            (self._directory / name).mkdir(parents=True)
        layers = f"lowerdir={bare(self._suite)},upperdir={self._directory}/upper,workdir={self._directory}/work"
        host("mount", "-t", "overlay", "posd-system", "-o", layers, str(self.root))
        self.run("apt-get", "update", "-q")

    def install(self, *packages: str | Path, action: str = "install", option: str = "-q") -> str:
        """Install packages of Debian, and packages that are files of this machine. Return apt's output. A booted
        machine has no network.
        """
        words = [item if isinstance(item, str) else self.put(item) for item in packages]
        return self.out("apt-get", action, "-y", "--no-install-recommends", option, *words, seconds=900)

    def boot(self) -> None:
        """Boot the machine, until all units were started."""
        assert self._nspawn is None
        options = [f"--machine={self.name}", "--register=no", "--console=read-only", "--quiet", "--private-network"]
        with self._console.open("ab") as console:
            self._nspawn = subprocess.Popen(
                self._spawning(*options, "--boot"),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
        until(self._up, "systemd is process 1 and can be asked", 120)
        self.run("systemctl", "is-system-running", "--wait", check=False)

    def _spawning(self, *words: str) -> list[str]:
        """Return the command of a container. Without systemd on this machine, no program makes a control group for the
        container, and therefore the command makes the group.
        """
        command = ["systemd-nspawn", "-D", str(self.root)]
        if Path("/run/systemd/system").exists():
            return [*command, *words]
        places = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
        self._groups = [Path(at, f"posd-{self.name}") for at in places if Path(at, "cgroup.procs").exists()]
        for group in self._groups:
            group.mkdir(exist_ok=True)
        entering = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in self._groups)
        return ["sh", "-c", f'{entering}; exec "$@"', "sh", *command, "--keep-unit", *words]

    def _up(self) -> bool:
        assert self._nspawn.poll() is None, (
            f"systemd-nspawn ended:\n{self._console.read_text(errors='replace')[-2000:]}"
        )
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        self._leader = int(children[0]) if children else 0
        return bool(self._leader) and not self.run("systemctl", "show", "-p", "Version", check=False).returncode

    def power_off(self) -> None:
        """Shut the machine down in order. If the machine does not end, kill the machine and raise AssertionError."""
        self.run("systemctl", "poweroff", check=False)
        try:
            self._nspawn.wait(120)
        except subprocess.TimeoutExpired:
            self.cut_power()
            raise AssertionError("it did not shut down within 120 s") from None
        self._gone()

    def cut_power(self) -> None:
        """Kill all processes of the machine at once."""
        os.kill(self._leader, signal.SIGKILL)
        self._nspawn.wait(60)
        self._gone()

    def _gone(self) -> None:
        self._nspawn, self._leader = None, 0
        for group in self._groups:
            for directory in sorted(group.rglob("*/"), reverse=True):
                directory.rmdir()
            group.rmdir()
        self._groups = []

    def run(
        self, *command: str, check: bool = True, user: str = "", text: str | None = None, seconds: float = STUCK_SECONDS
    ) -> Done:
        """Run a command in the machine. Raise AssertionError with the output if the command fails, unless `check` is
        false.
        """
        words = [*(["runuser", "-u", user, "--"] if user else []), *command]
        if self._leader:
            return _run([*self._inside(), *words], check, seconds, text)
        options = ["--register=no", "--quiet", "--pipe", "--as-pid2", f"--machine={self.name}"]
        options += [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
        return _run(self._spawning(*options, *words), check, seconds, text)

    def out(self, *command: str, user: str = "", seconds: float = STUCK_SECONDS) -> str:
        """Run a command in the machine. Return the output."""
        return self.run(*command, user=user, seconds=seconds).stdout.strip()

    def fails(self, *command: str, user: str = "", codes: tuple[int, ...] = ()) -> str:
        """Run a command that must fail, with one of the exit codes if given. Note and return its whole output."""
        done = self.run(*command, user=user, check=False)
        self.note(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n[exit code {done.returncode}]")
        assert done.returncode in codes if codes else done.returncode, done
        return done.stdout + done.stderr

    def _inside(self) -> list[str]:
        """Return the prefix of a command that runs in the booted system."""
        given = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return ["nsenter", "-t", str(self._leader), "-a", "env", "-i", *given]

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a command in the booted system."""
        return subprocess.Popen(
            [*self._inside(), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def put(self, source: Path, folder: str = "/root") -> str:
        """Copy a file into the machine. Return the path in the machine."""
        shutil.copy(source, self.root / folder.lstrip("/"))
        return f"{folder}/{source.name}"

    def write(self, target: str, text: str) -> None:
        """Write a file in the machine."""
        path = self.root / target.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Return properties of a unit."""
        shown = self.out("systemctl", "show", unit, *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in shown.splitlines())

    def main_pid(self) -> str:
        """Return the id of the daemon's process."""
        return self.show("posd.service", "MainPID")["MainPID"]

    def restarts(self) -> int:
        """Return how often systemd has restarted posd."""
        return int(self.show("posd.service", "NRestarts")["NRestarts"])

    def states(self) -> tuple[str, ...]:
        """Return the states of posd and of the till's socket."""
        return tuple(self.show(unit, "ActiveState")["ActiveState"] for unit in ("posd.service", "posd.socket"))

    def gets_to(self, *states: str) -> None:
        """Wait until posd and the till's socket have these states."""
        until(lambda: self.states() == states, f"posd and its socket are {states}")


def _run(command: Sequence[str], check: bool, seconds: float, text: str | None = None) -> Done:
    given = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
    done: Done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, **given)  # type: ignore[call-overload]
    if check and done.returncode:
        words = " ".join(command)[-300:]
        raise AssertionError(f"exit code {done.returncode} of {words}\n{(done.stdout + done.stderr)[-3000:]}")
    return done
