"""`python -m tests.restart --stored 1000000 --open 200`: prints one line a start, and the ratio to the empty one."""

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.restart.measure import Start, start


async def measure(ended: int, opened: int, terminals: int) -> Start:
    with TemporaryDirectory(prefix="posd-") as directory:
        return await start(Path(directory), ended=ended, opened=opened, terminals=terminals)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.restart", description=__doc__)
    parser.add_argument("--stored", type=int, default=1_000_000, help="payments that have ended")
    parser.add_argument("--open", type=int, default=200, help="payments that have not")
    parser.add_argument("--terminals", type=int, default=20)
    given = parser.parse_args()
    asyncio.run(measure(0, 0, given.terminals))  # the first start reads everything from the disk
    empty = None
    for ended, opened in ((0, 0), (given.stored, 0), (0, given.open), (given.stored, given.open)):
        result = asyncio.run(measure(ended, opened, given.terminals))
        empty = empty or result
        print(
            f"{ended:>9} stored {opened:>5} open: ready in {result.ready:.2f} s"
            f" ({result.ready / empty.ready:.2f} x empty), all asked after {result.asked:.2f} s"
            f" by {result.searches} searches, at most {result.most_at_once} at once"
            f" and {result.most_of_a_terminal} of one terminal;"
            f" slowest read meanwhile {result.longest_read * 1000:.0f} ms",
            flush=True,
        )


main()
