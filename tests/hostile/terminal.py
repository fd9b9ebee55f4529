"""A simulated terminal that calls from its own address (`python -m tests.hostile.terminal ADDRESS OPTION...`). By
default every process on loopback calls from 127.0.0.1. The options are the options of `posd simulate`.
"""

import asyncio
import sys
from functools import partialmethod

from posd.cli.main import main

if __name__ == "__main__":
    own_address = (sys.argv.pop(1), 0)
    connecting = partialmethod(asyncio.BaseEventLoop.create_connection, local_addr=own_address)
    asyncio.BaseEventLoop.create_connection = connecting  # type: ignore[assignment, method-assign]
    main()
