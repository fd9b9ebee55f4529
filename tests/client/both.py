"""Both clients with one interface. The sync client has async methods, and each call runs in a thread."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from posd.client import Change, Outcome, Payment, Posd, State, StoredPayment


class Wrapped:
    """An object of the sync client. All its methods are async, and run in a thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            found = await asyncio.to_thread(getattr(self._inner, name), *given, **named)
            return Wrapped(found) if isinstance(found, Payment) else found

        return call

    async def watch(self) -> AsyncGenerator[Change | State | Outcome, None]:
        changes = self._inner.watch()
        while (change := await asyncio.to_thread(next, changes, None)) is not None:
            yield change


class InThreads(Wrapped):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(Posd(*given, **named))

    async def __aenter__(self) -> "InThreads":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._inner.close()

    def transaction(self, identity: str | StoredPayment) -> Wrapped:
        return Wrapped(self._inner.transaction(identity))
