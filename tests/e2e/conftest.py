"""A real daemon and a scripted terminal, over real TLS and Unix sockets."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.daemon import Daemon, running
from tests.rig.prints import Printer
from tests.rig.shop import FEW_TERMINALS, TERMINALS, Shop, nothing_to_correct, open_shop
from tests.rig.slow import examples
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

CHARGE = {"amount": {"iva": 1.20, "subtotal_iva": 10.00}}
#: Number of terminals of a shop for one test.
OWN_TERMINALS = 20


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory whose path is short enough for Unix sockets."""
    with TemporaryDirectory(prefix="posd-") as directory:
        yield Path(directory)


@pytest.fixture
async def terminal(home: Path) -> AsyncIterator[ScriptedTerminal]:
    """Yield a terminal that acknowledges every start, unless the test sets a script."""
    async with scripted_terminal(home) as terminal:
        yield terminal


@pytest.fixture
async def posd(home: Path, terminal: ScriptedTerminal) -> AsyncIterator[Daemon]:
    """Yield a running daemon whose fleet is the scripted terminal."""
    async with running(home, terminal.toml) as daemon:
        yield daemon


@pytest.fixture
def identity() -> str:
    """Return a new client_transaction_id."""
    return str(uuid4())


@pytest.fixture
async def own(home: Path) -> AsyncIterator[Shop]:
    """Yield a shop for one test. The test can stop the daemon. The shop runs on the loop of the test."""
    async with open_shop(home, terminals=OWN_TERMINALS) as shop:
        yield shop


@pytest.fixture(autouse=True)
def nothing_is_scripted_any_more(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, remove the scripts that the test has set on a shared terminal."""
    yield
    for used in request.node.funcargs.values():
        terminal = getattr(used, "terminal", None)
        if isinstance(terminal, ScriptedTerminal):
            terminal.start = terminal.abort = terminal.search = terminal.instead = None
            terminal.print_start = terminal.print_poll = None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """Yield one daemon and many terminals for a file whose tests share a loop. `TERMINALS` of the file sets the number
    for the quick suite, if the usual number is too small.
    """
    count = examples(getattr(request.module, "TERMINALS", FEW_TERMINALS), TERMINALS)
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_shop(Path(directory), terminals=count) as shop:
            yield shop


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def complete_journal(shop: Shop) -> AsyncIterator[None]:
    """Check after each file that reprocessing changes nothing in the shop."""
    yield
    await nothing_to_correct(shop.daemon)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def printer(request: pytest.FixtureRequest) -> AsyncIterator[Printer]:
    """Yield one daemon and a printing terminal for a file. `POLLING` of the file sets the interval of polls."""
    with TemporaryDirectory(prefix="posd-") as directory:
        home, polling = Path(directory), request.module.POLLING
        async with scripted_terminal(home) as terminal, running(home, terminal.toml, polling) as daemon:
            yield (found := Printer(daemon, terminal))
            await found.nothing_to_correct()
