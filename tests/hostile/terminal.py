"""A simulated terminal that calls from its own address (`python -m tests.hostile.terminal ADDRESS OPTION...`). By
default every process on loopback calls from 127.0.0.1. The options are the options of `posd simulate`.
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
    """Policy that creates loops of this kind."""

    _loop_factory = OwnAddress


if __name__ == "__main__":
    OwnAddress.address = sys.argv.pop(1)
    asyncio.set_event_loop_policy(Policy())
    main()
