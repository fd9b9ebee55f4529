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
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.report import Skipped

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


def until(what: Callable[[], bool], means: str, seconds: float = STUCK_SECONDS) -> float:
    """Check until a condition is true. Return the seconds until the condition was true. Raise AssertionError after the
    time limit.
    """
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, f"{means}: this did not happen within {seconds:g} s"
        time.sleep(0.1)
    return time.monotonic() - began


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


@dataclass
class Machine:
    """A Debian on an overlay. Commands run in a chroot, or in the booted system."""

    scratch: Path
    name: str
    suite: str
    _nspawn: subprocess.Popen[bytes] | None = None
    _leader: int = 0
    _groups: list[Path] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.scratch / "root"

    @property
    def booted(self) -> bool:
        return self._nspawn is not None

    @property
    def console(self) -> Path:
        return self.scratch / "console.log"

    def make(self) -> "Machine":
        """Mount the overlay."""
        for name in ("upper", "work", "root"):
            (self.scratch / name).mkdir(parents=True)
        layers = f"lowerdir={bare(self.suite)},upperdir={self.scratch}/upper,workdir={self.scratch}/work"
        host("mount", "-t", "overlay", "posd-system", "-o", layers, str(self.root))
        return self

    def close(self) -> None:
        """Power the machine off and remove its files."""
        if self._nspawn is not None:
            self.power_off()
        if self.root.is_mount():
            host("umount", str(self.root))
        shutil.rmtree(self.scratch, ignore_errors=True)

    def boot(self) -> float:
        """Boot the machine. Return the seconds until all units were started."""
        assert self._nspawn is None
        network = ["--private-network"]
        options = [f"--machine={self.name}", "--register=no", "--console=read-only", "--quiet", *network]
        # Without systemd on the host, no program makes a control group for the container. Therefore this code makes the
        # group.
        here = Path("/run/systemd/system").exists()
        command = ["systemd-nspawn", "-D", str(self.root), *options, *([] if here else ["--keep-unit"]), "--boot"]
        began = time.monotonic()
        with self.console.open("ab") as console:
            self._nspawn = subprocess.Popen(
                command if here else [*self._in_group(), *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
        until(self._up, "systemd is process 1 and can be asked", 120)
        self.run("systemctl", "is-system-running", "--wait", check=False)
        return time.monotonic() - began

    def _up(self) -> bool:
        assert self._nspawn is not None
        assert self._nspawn.poll() is None, f"systemd-nspawn ended:\n{self.console.read_text(errors='replace')[-2000:]}"
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        self._leader = int(children[0]) if children else 0
        return bool(self._leader) and not self.run("systemctl", "show", "-p", "Version", check=False).returncode

    def _in_group(self) -> list[str]:
        self._groups = [
            Path(at, f"posd-{self.name}")
            for at in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
            if Path(at, "cgroup.procs").exists()
        ]
        for group in self._groups:
            group.mkdir(exist_ok=True)
        entering = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in self._groups)
        return ["sh", "-c", f'{entering}; exec "$@"', "sh"]

    def power_off(self) -> None:
        """Shut the machine down in order. If the machine does not end, kill the machine and raise AssertionError."""
        assert self._nspawn is not None
        self.run("systemctl", "poweroff", check=False)
        try:
            self._nspawn.wait(120)
        except subprocess.TimeoutExpired:
            self.cut_power()
            raise AssertionError("it did not shut down within 120 s") from None
        self._gone()

    def cut_power(self) -> None:
        """Kill all processes of the machine at once."""
        assert self._nspawn is not None
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
            return _run([*self.inside(), *words], check, seconds, text)
        options = ["--register=no", "--quiet", "--pipe", "--as-pid2", f"--machine={self.name}"]
        options += [] if Path("/run/systemd/system").exists() else ["--keep-unit"]
        options += [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
        nspawn = ["systemd-nspawn", "-D", str(self.root), *options, *words]
        return _run(nspawn if options.count("--keep-unit") == 0 else [*self._in_group(), *nspawn], check, seconds, text)

    def out(self, *command: str, user: str = "", seconds: float = STUCK_SECONDS) -> str:
        """Run a command in the machine. Return the output."""
        return self.run(*command, user=user, seconds=seconds).stdout.strip()

    def inside(self, **variables: str) -> list[str]:
        """Return the prefix of a command that runs in the booted system."""
        given = [f"{name}={value}" for name, value in (ENVIRONMENT | variables).items()]
        return ["nsenter", "-t", str(self._leader), "-a", "env", "-i", *given]

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a command in the booted system."""
        return subprocess.Popen(
            [*self.inside(), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def put(self, source: Path, target: str) -> str:
        """Copy a file into the machine. Return the path in the machine."""
        shutil.copy(source, self.root / target.lstrip("/"))
        return target

    def write(self, target: str, text: str) -> None:
        """Write a file in the machine."""
        path = self.root / target.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Return properties of a unit."""
        shown = self.out("systemctl", "show", unit, *(f"--property={name}" for name in names))
        return dict(line.split("=", 1) for line in shown.splitlines())


def _run(command: Sequence[str], check: bool, seconds: float, text: str | None = None) -> Done:
    given = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
    done: Done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, **given)  # type: ignore[call-overload]
    if check and done.returncode:
        words = " ".join(command)[-300:]
        raise AssertionError(f"exit code {done.returncode} of {words}\n{(done.stdout + done.stderr)[-3000:]}")
    return done
