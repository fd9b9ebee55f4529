"""The control API: a developer's hands on the terminals, over HTTP and JSON on loopback."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from posd.simulator import control_bodies as bodies
from posd.simulator.control_bodies import HELP, BodyFault
from posd.simulator.control_documents import listed_scenarios, state_of
from posd.simulator.control_guard import Guard, Problem, is_loopback, json_answer, told
from posd.simulator.errors import SettingsError
from posd.simulator.listener import Listener, bind
from posd.simulator.shop import Shop
from posd.simulator.simulator import Simulator
from posd.simulator.switches import NotPossible
from posd.simulator.user_actions import Hand

#: Bytes of a body that are read.
MAX_BODY_BYTES = 65_536


class Control:
    """The control API of a shop, as an async context manager that listens while the block runs."""

    def __init__(self, shop: Shop, host: str, port: int) -> None:
        """Raise SettingsError where `host` is no loopback address."""
        if not is_loopback(host):
            raise SettingsError(f"the control API listens on loopback alone, for example 127.0.0.1:6870, not on {host}")
        self._shop = shop
        self._host = host
        self._port = port
        self._listener = Listener(_app(shop, self._begin), None)
        self._under_way: set[asyncio.Task[None]] = set()
        #: Where it can be called; known once the block has begun.
        self.url = ""

    async def __aenter__(self) -> Self:
        bound = bind(self._host, self._port)
        port = bound.getsockname()[1]
        try:
            self._listener.start(bound)
        except SettingsError:
            bound.close()
            raise
        self.url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}"
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.stop()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes the terminal's time, while the caller has its answer."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


Begin = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(frozen=True, slots=True)
class _Deed:
    """What a POST to a terminal does; `body` reads what it brings."""

    body: Callable[[bytes], Any]
    do: Callable[[Simulator, Any, Begin], Awaitable[None]]


async def _unplug(terminal: Simulator, _body: object, _begin: Begin) -> None:
    await terminal.unplug()


async def _plug(terminal: Simulator, _body: object, _begin: Begin) -> None:
    await terminal.plug()


async def _power_off(terminal: Simulator, _body: object, _begin: Begin) -> None:
    await terminal.power_off()


async def _power_on(terminal: Simulator, _body: object, _begin: Begin) -> None:
    await terminal.power_on()


async def _power_cycle(terminal: Simulator, body: bodies.PowerCycle, begin: Begin) -> None:
    await terminal.power_off()
    begin(_on_after(terminal, body.seconds))


async def _on_after(terminal: Simulator, seconds: float) -> None:
    await terminal.clock.sleep(seconds)
    await terminal.power_on()


async def _move(terminal: Simulator, _body: object, _begin: Begin) -> None:
    await terminal.move()


async def _show_certificate(terminal: Simulator, body: bodies.Show, _begin: Begin) -> None:
    await terminal.show_certificate(body.which)


async def _put_paper_in(terminal: Simulator, _body: object, _begin: Begin) -> None:
    terminal.put_paper_in()


async def _arm(terminal: Simulator, body: bodies.Arm, _begin: Begin) -> None:
    try:
        terminal.terminal.arm(body.name)
    except LookupError:
        raise Problem(
            HTTPStatus.NOT_FOUND, "UNKNOWN_SCENARIO", f"there is no scenario {body.name}: GET /scenarios lists them"
        ) from None


def _hand(hand: Hand) -> _Deed:
    async def do(terminal: Simulator, _body: object, _begin: Begin) -> None:
        if not terminal.terminal.hand(hand):
            raise Problem(
                HTTPStatus.CONFLICT, "NOT_NOW", f"{hand} is not possible as the terminal stands: GET /terminals/SERIAL"
            )

    return _Deed(bodies.nothing, do)


#: What can be asked of a terminal, by the last part of the path.
DEEDS: Mapping[str, _Deed] = {
    **{hand.value: _hand(hand) for hand in Hand},
    "scenario": _Deed(bodies.arm, _arm),
    "unplug": _Deed(bodies.nothing, _unplug),
    "plug": _Deed(bodies.nothing, _plug),
    "power-off": _Deed(bodies.nothing, _power_off),
    "power-on": _Deed(bodies.nothing, _power_on),
    "power-cycle": _Deed(bodies.power_cycle, _power_cycle),
    "move": _Deed(bodies.nothing, _move),
    "certificate": _Deed(bodies.show, _show_certificate),
    "paper": _Deed(bodies.nothing, _put_paper_in),
}


def _app(shop: Shop, begin: Begin) -> ASGIApp:
    def terminal_of(request: Request) -> Simulator:
        serial = request.path_params["serial"]
        if serial not in shop.terminals:
            raise Problem(HTTPStatus.NOT_FOUND, "UNKNOWN_TERMINAL", f"there is no terminal {serial}: GET /terminals")
        return shop.terminals[serial]

    async def show_help(_: Request) -> Response:
        return PlainTextResponse(HELP)

    async def show_scenarios(_: Request) -> Response:
        return json_answer(listed_scenarios())

    async def show_terminals(_: Request) -> Response:
        return json_answer([state_of(terminal) for terminal in shop.terminals.values()])

    async def show_terminal(request: Request) -> Response:
        path = request.path_params["serial"]
        serial, _, deed = path.rpartition("/")
        if path not in shop.terminals and serial in shop.terminals and deed in DEEDS:
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, "HTTP_405", f"{deed} is done by a POST; GET / tells how")
        return json_answer(state_of(terminal_of(request)))

    async def show_ledger(request: Request) -> Response:
        return json_answer(list(terminal_of(request).ledger))

    async def show_prints(request: Request) -> Response:
        return json_answer(terminal_of(request).prints())

    async def show_clock(_: Request) -> Response:
        return json_answer({"virtual": shop.virtual_clock is not None, "now": shop.clock.now()})

    async def advance(request: Request) -> Response:
        body = bodies.advance(await _read(request))
        if shop.virtual_clock is None:
            raise Problem(HTTPStatus.CONFLICT, "REAL_TIME", "time passes by itself here: start with --virtual")
        await shop.virtual_clock.advance(body.advance)
        return await show_clock(request)

    async def do(request: Request) -> Response:
        terminal = terminal_of(request)
        deed = DEEDS.get(request.path_params["deed"])
        if deed is None:
            raise Problem(HTTPStatus.NOT_FOUND, "UNKNOWN_PATH", "GET / tells what there is")
        await deed.do(terminal, deed.body(await _read(request)), begin)
        return json_answer(state_of(terminal))

    at = "/terminals/{serial:path}"  # a serial can have any character, a slash too
    return Guard(
        Starlette(
            routes=[
                Route("/", show_help),
                Route("/scenarios", show_scenarios),
                Route("/clock", show_clock),
                Route("/clock", advance, methods=["POST"]),
                Route("/terminals", show_terminals),
                Route(f"{at}/ledger", show_ledger),
                Route(f"{at}/prints", show_prints),
                Route(f"{at}/{{deed}}", do, methods=["POST"]),
                Route(at, show_terminal),
            ],
            exception_handlers={
                Problem: _problem,
                BodyFault: _body_fault,
                NotPossible: _not_possible,
                SettingsError: _not_possible,
                HTTPException: _http_error,
            },
        )
    )


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "TOO_LARGE", f"the body has more than {MAX_BODY_BYTES} bytes"
            )
    return bytes(body)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for this type alone
    return told(error)


async def _body_fault(_: Request, error: Exception) -> Response:
    return told(Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "WRONG_BODY", str(error)))


async def _not_possible(_: Request, error: Exception) -> Response:
    return told(Problem(HTTPStatus.CONFLICT, "NOT_POSSIBLE", str(error)))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type alone
    code = "UNKNOWN_PATH" if error.status_code == HTTPStatus.NOT_FOUND else f"HTTP_{error.status_code}"
    return told(Problem(HTTPStatus(error.status_code), code, f"{error.detail}; GET / tells what there is"))
