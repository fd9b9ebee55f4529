"""A simulated terminal that calls from its own address: `python -m tests.hostile.terminal ADDRESS OPTION...`.

On loopback the system would let every process call from 127.0.0.1. The options are those of `posd simulate`.
"""

import asyncio
import sys
from typing import Any

from posd.cli.main import main


class OwnAddress(asyncio.SelectorEventLoop):
    """An event loop whose connections come from one address."""

    address = ""

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Bind the address before the connection."""
        options["local_addr"] = (self.address, 0)
        return await super().create_connection(*arguments, **options)


class Policy(asyncio.DefaultEventLoopPolicy):
    """Policy that creates such loops."""

    _loop_factory = OwnAddress


if __name__ == "__main__":
    OwnAddress.address = sys.argv.pop(1)
    sys.argv.insert(1, "simulate")
    asyncio.set_event_loop_policy(Policy())
    main()
