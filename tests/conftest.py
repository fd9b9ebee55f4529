"""Settings of all tests: folders, selection, allowed leftovers, and the summary."""

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import HealthCheck, settings

from tests.rig import forks, leftovers
from tests.rig.tmpfs import small_disks

__all__ = ["small_disks"]

# the duration of an example depends on the machine, not on posd
settings.register_profile(
    "quick", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25, print_blob=True
)
settings.register_profile("whole", settings.get_profile("quick"), max_examples=100)
settings.register_profile("long", settings.get_profile("quick"), max_examples=10_000)

#: A sum of this many numbers measures the processor. The quick suite (False) and the whole suite (True) need as much
#: processor time as this many sums.
SUMMED, SUMS = 2_000_000, {False: 3_200, True: 20_000}
#: Maximum length of the path of the tests' directory. The kernel permits paths of sockets up to 107 bytes.
MAX_DIRECTORY = 24
#: File system without a disk to wait for, and the free bytes that it must have. The suite needs up to 250 MB.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 1_000_000_000
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
TESTS = Path(__file__).parent
TOLD = "told"
#: The only file that needs the plugin of schemathesis, which takes a second in each process.
SCHEMATHESIS = "test_schemathesis.py"
_LONGEST = """
as_root back_in_time backup breaks changes charges clock commands demo every_conflict every_point_once generated
healthy identity limits_of_terminals live power_loss relay restore sandbox short simulation situations standing_still
store streams schemathesis
"""
#: Files that start first, so that no worker runs a long file while the others are idle.
LONGEST = {f"test_{name}.py" for name in _LONGEST.split()}
#: Folders with asyncio, TLS or SQLite in the test's process. These libraries differ between the Pythons of Debian.
ANOTHER_PYTHON = {"client", "services", "store", "terminals", "tls", "web"}
#: Number of processes that were started before a test.
STARTS = pytest.StashKey[int]()
SESSION = pytest.StashKey[pytest.Session]()

starts = leftovers.Starts()
held = leftovers.Held()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    parser.addoption("--whole", action="store_true", help="run the slow tests too")
    parser.addoption(
        "--after-quick",
        action="store_true",
        help="leave out what the quick suite has run elsewhere: all but one case of what needs a tool, or depends on "
        "the Python that runs it",
    )
    parser.addoption(
        "--skips", metavar="FILE", type=Path, help="fail where a test is skipped for no reason of this list"
    )


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processors plus two, because tests often wait for processes or for time to pass."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make the environment of the tests the same everywhere. Output goes to a directory that is removed."""
    global held
    gc.disable()  # pytest's collection of tests makes no garbage, and the collector would search it some hundred times
    settings.load_profile("whole" if config.getoption("--whole") else "quick")
    if config.getoption("--whole") or any(SCHEMATHESIS in argument for argument in config.args):
        config.pluginmanager.register(importlib.import_module("schemathesis.pytest.plugin"))
    # In the background, under nohup and in CI, these signals may be ignored. Every process here would inherit the
    # ignored signals.
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not WORKER:
        _begin(config)
    place = Path(os.environ[leftovers.RUN], WORKER or "main")
    place.mkdir(mode=0o755)
    os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = None


def _begin(config: pytest.Config) -> None:
    """Make the directory of this run: in TMPDIR, or in memory if there is room. Other processes inherit it."""
    places = [Path("/tmp"), Path("/var/tmp")]
    if MEMORY.is_dir():
        found = os.statvfs(MEMORY)
        if found.f_bavail * found.f_frsize > MEMORY_BYTES and not found.f_flag & os.ST_NOEXEC:  # tests run scripts
            places.insert(0, MEMORY)
    places.insert(0, Path(os.environ.get("TMPDIR") or places[0]))
    place = next(item for item in places if len(str(item)) <= MAX_DIRECTORY and os.access(item, os.W_OK))
    run = Path(tempfile.mkdtemp(prefix="posd-", dir=place))
    run.chmod(0o755)  # tests that change their user have directories below this directory
    config.add_cleanup(partial(shutil.rmtree, run, ignore_errors=True))
    os.environ[leftovers.RUN] = str(run)
    # Without this directory each of a thousand processes would compile its imports again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # One CA replaces the system's CAs, because a hundred CAs take up to 20 ms in each process.
    trustme.CA().cert_pem.write_to_path(run / "ca.pem")
    os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"] = str(run / "ca.pem"), os.devnull
    if config.option.basetemp is None:
        config.option.basetemp = run / "t"


def pytest_collection(session: pytest.Session) -> None:
    """Import all test files if all are collected. Each worker starts at another file. pytest compiles a file at its
    first import. Without this function each worker would compile all files of a new checkout.
    """
    if WORKER and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        files = [path for path in sorted(TESTS.rglob("test_*.py")) if path.name != SCHEMATHESIS]
        begin = len(files) * int(WORKER.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        for path in files[begin:] + files[:begin]:
            with suppress(Exception, pytest.skip.Exception):  # the collection reports the error
                importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the collection of slow files that take seconds to read."""
    return True if collection_path.name == SCHEMATHESIS and not config.getoption("--whole") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the longest files first, and leave out slow tests unless all are requested."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
    whole, after_quick = config.getoption("--whole"), config.getoption("--after-quick")
    cases: Counter[str] = Counter()
    left_out: dict[pytest.Item, None] = {}
    for item in items:
        quick = item.get_closest_marker("quick")
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        slow = item.get_closest_marker("slow") or (quick and cases[test] > quick.args[0])
        if not whole if slow else after_quick and (cases[test] > 1 or not _differs_elsewhere(item)):
            left_out[item] = None
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _differs_elsewhere(item: pytest.Item) -> bool:
    """Return whether a test has requirements that another machine may lack, or depends on the Python version."""
    return item.path.parent.name in ANOTHER_PYTHON or any(map(item.get_closest_marker, ("skipif", "root")))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Yield a function that reports the counts of a test. All reports are printed at the end."""
    return partial(record_property, TOLD)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need root if another user runs the tests."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root: apt-get install iproute2 avahi-daemon, and as root: pytest --whole -m root")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Assign the processes that a test starts to the test."""
    item.stash[STARTS] = starts.count
    with leftovers.owning(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Assign the processes that a fixture starts to the tests that share the fixture."""
    if fixturedef.scope == "function":
        return (yield)
    with leftovers.owning(request.node.nodeid or "session"):
        if fixturedef.scope == "session":
            with held.allowing():
                return (yield)
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Fail a test that leaves something behind, and end the remains, so that only this test fails."""
    try:
        return (yield)
    finally:
        left = leftovers.end_processes(item.nodeid) if starts.count > item.stash[STARTS] else []
        held.look(item.nodeid)
        file = item.getparent(pytest.File)
        if file is not None and (nextitem is None or nextitem.getparent(pytest.File) is not file):
            left += leftovers.end_processes(file.nodeid) + held.left()
            gc.collect()
            gc.freeze()  # otherwise each garbage collection in a later file would examine these objects
        if left:
            pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)


def pytest_sessionfinish() -> None:
    """End the processes that the tests of this process started, also after a Ctrl-C."""
    forks.close()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Check again after all processes of this run have ended."""
    if WORKER:
        return
    if left := leftovers.end_all_processes():
        config.stash[SESSION].exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nleft behind:", *left, sep="\n", file=sys.stderr)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Store the session, which holds the exit code. Say how long a run of all files will take on this machine."""
    config = session.config
    config.stash[SESSION] = session
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not WORKER and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        began, processors = time.process_time(), len(os.sched_getaffinity(0))
        sum(number * number for number in range(SUMMED))
        seconds = SUMS[config.getoption("--whole")] * (time.process_time() - began) / processors
        reporter.write_line(f"about {max(1, round(seconds / 60))} minutes on {processors} processors")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Exclude the collected tests from garbage collection, and record the open descriptors before the first test."""
    gc.collect()
    gc.freeze()
    gc.enable()
    held.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tests' reports, and each reason for skipped tests once."""
    reports = terminalreporter.getreports("passed")
    told = [str(text) for report in reports for name, text in report.user_properties if name == TOLD]
    if told:
        terminalreporter.section("counted")
    for text in told:
        terminalreporter.write_line(text)
    left_out: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        left_out[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if left_out:
        terminalreporter.section("NOT TESTED HERE", "!", red=True, bold=True)
    for reason, tests in sorted(left_out.items()):
        places = sorted({test.partition("::")[0] for test in tests})
        shown = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more files"
        terminalreporter.write_line(f"{len(tests)} x {reason} ({shown})", red=True)
    allowed = terminalreporter.config.getoption("--skips")
    if allowed and (unknown := left_out.keys() - set(allowed.read_text().splitlines())):
        terminalreporter.write_line(f"not allowed by {allowed}: {'; '.join(sorted(unknown))}", red=True)
        terminalreporter.config.stash[SESSION].exitstatus = pytest.ExitCode.TESTS_FAILED
