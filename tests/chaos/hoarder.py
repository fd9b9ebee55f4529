"""A till that opens connections and keeps them all, some of them in the middle of a request; a process of its own.

It prints one line of JSON when it is done: how many it opened, and how many posd closed, refused or never accepted.
"""

import argparse
import asyncio
import json
import resource
from collections import Counter
from contextlib import suppress
from pathlib import Path

#: The half of a request: it never comes further.
HALF = b"PUT /v1/transactions/"
#: Longest that one connection is waited for, in seconds, and how many are opened at the same time.
CONNECT_SECONDS, AT_A_TIME = 1.0, 64


async def hold(socket: Path, count: int, seconds: float) -> Counter[str]:
    """Open so many connections and keep them; return what came of them."""
    result: Counter[str] = Counter()
    gate = asyncio.Semaphore(AT_A_TIME)

    async def keep(number: int) -> None:
        async with gate:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_unix_connection(str(socket))
            except (OSError, TimeoutError):
                result["refused"] += 1
                return
        result["opened"] += 1
        try:
            if number % 2:
                writer.write(HALF)
            async with asyncio.timeout(seconds):
                await reader.read()
            result["closed by posd"] += 1
        except TimeoutError:
            result["kept to the end"] += 1
        except OSError:
            result["closed by posd"] += 1
        finally:
            writer.transport.abort()

    await asyncio.gather(*(keep(number) for number in range(count)))
    return result


def main() -> None:
    """Read the command line, and hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    with suppress(ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, options.count + 200), most))
    print(json.dumps(asyncio.run(hold(options.socket, options.count, options.seconds))))


if __name__ == "__main__":
    main()
