"""Both clients with one interface. The sync client has async methods, and each call runs in a thread."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from posd.client import Change, Outcome, Payment, Posd, State, StoredPayment


class PaymentInThreads:
    def __init__(self, payment: Payment) -> None:
        self._payment = payment

    async def outcome(self, timeout: float | None = None, **named: Any) -> Outcome:
        return await asyncio.to_thread(self._payment.outcome, timeout, **named)

    async def is_known(self, within: float) -> bool:
        return await asyncio.to_thread(self._payment.is_known, within)

    async def abort(self) -> Any:
        return await asyncio.to_thread(self._payment.abort)

    async def watch(self) -> AsyncGenerator[Change | State | Outcome, None]:
        changes = self._payment.watch()
        while (change := await asyncio.to_thread(next, changes, None)) is not None:
            yield change


class InThreads:
    def __init__(self, *given: Any, **named: Any) -> None:
        self._client = Posd(*given, **named)

    async def __aenter__(self) -> "InThreads":
        self._client.__enter__()
        return self

    async def __aexit__(self, *what: Any) -> None:
        self._client.__exit__(*what)

    async def charge(self, *given: Any, **named: Any) -> PaymentInThreads:
        return PaymentInThreads(await asyncio.to_thread(self._client.charge, *given, **named))

    async def start(self, payment: StoredPayment) -> PaymentInThreads:
        return PaymentInThreads(await asyncio.to_thread(self._client.start, payment))

    def transaction(self, identity: str | StoredPayment) -> PaymentInThreads:
        return PaymentInThreads(self._client.transaction(identity))
