"""The control API: a developer's hands on the terminals, over HTTP and JSON on loopback."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from posd.simulator import wire
from posd.simulator.journal import SettingsError
from posd.simulator.listener import Listener, bind
from posd.simulator.network import NotPossible
from posd.simulator.payment import Hand
from posd.simulator.scenario import Certificate, Strict, payments, prints
from posd.simulator.simulator import Shop, Simulator

# What calls of the control API bring, and its help.

#: Terminal seconds that a power cycle takes where nothing else is asked for.
POWER_CYCLE_SECONDS = 5.0

HELP = """\
The control API of posd simulate. A POST needs content-type: application/json (curl --json '{}').

GET  /scenarios                            what can happen: name, kind, summary, when, amount
GET  /terminals                            all terminals, each as below
GET  /terminals/SERIAL                     how it stands: payment, armed scenario, power, network, certificate, ...
GET  /terminals/SERIAL/ledger              what really happened
GET  /terminals/SERIAL/prints              what came out on paper
POST /terminals/SERIAL/scenario            {"name": "decline"}: what happens to the next payment alone; null: as usual
POST /terminals/SERIAL/present-card        the card is tapped; then it waits for approve or decline
POST /terminals/SERIAL/insert-card         the chip is read, the PIN entered; then it waits for approve or decline
POST /terminals/SERIAL/approve             the acquirer approves
POST /terminals/SERIAL/decline             the acquirer declines
POST /terminals/SERIAL/reject              the wait for the card, or for the PIN, has run out
POST /terminals/SERIAL/cancel              the cardholder cancels
POST /terminals/SERIAL/unplug              it loses the network; its events wait
POST /terminals/SERIAL/plug                it is back on the network; its events set out
POST /terminals/SERIAL/power-off           it loses power, and forgets the payment that runs
POST /terminals/SERIAL/power-on            it starts again
POST /terminals/SERIAL/power-cycle         {"seconds": 5}: off, and on again after so many terminal seconds
POST /terminals/SERIAL/move                it gets another address (port), and announces it
POST /terminals/SERIAL/certificate         {"which": "own" | "changed" | "expired" | "self-signed" | "wrong-name"}
POST /terminals/SERIAL/paper               somebody puts paper in
GET  /clock                                the time, and whether it is virtual
POST /clock                                {"advance": 60}: with --virtual, let so many seconds pass
"""

#: Seconds that a caller may ask for: a day and more.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class BodyFault(ValueError):
    """A body is not what the call takes; the message says why."""


class Nothing(Strict, frozen=True):
    """A body that says nothing."""


class Arm(Strict, frozen=True):
    """The scenario of the next payment; None: none is chosen so."""

    name: str | None


class PowerCycle(Strict, frozen=True):
    """Terminal seconds without power."""

    seconds: _Seconds = POWER_CYCLE_SECONDS


class Show(Strict, frozen=True):
    """The certificate that is shown."""

    which: Certificate


class Advance(Strict, frozen=True):
    """Seconds that pass."""

    advance: _Seconds


_Body = TypeVar("_Body", bound=Strict)


def nothing(raw: bytes) -> Nothing:
    """Read the body of a call that needs none. Raises BodyFault."""
    return _read_body(raw, Nothing)


def arm(raw: bytes) -> Arm:
    """Read which scenario is armed. Raises BodyFault."""
    return _read_body(raw, Arm)


def power_cycle(raw: bytes) -> PowerCycle:
    """Read how long a power cycle takes. Raises BodyFault."""
    return _read_body(raw, PowerCycle)


def show(raw: bytes) -> Show:
    """Read which certificate is to be shown. Raises BodyFault."""
    return _read_body(raw, Show)


def read_advance(raw: bytes) -> Advance:
    """Read how far the clock is to go. Raises BodyFault."""
    return _read_body(raw, Advance)


def _read_body(raw: bytes, kind: type[_Body]) -> _Body:
    """Read a body; none at all is an empty object."""
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BodyFault(str(error)) from error


# What the control API shows: the catalogue, and how a terminal stands.


def listed_scenarios() -> list[dict[str, Any]]:
    """Return the catalogue in brief: name, kind (payment or print), summary, when, and the amount that chooses it."""
    return [
        *(
            {"name": name, "kind": "payment", "summary": item.summary, "when": item.when, "amount": item.amount}
            for name, item in payments().items()
        ),
        *(
            {"name": name, "kind": "print", "summary": item.summary, "when": item.when, "amount": None}
            for name, item in prints().items()
        ),
    ]


def state_of(terminal: Simulator) -> dict[str, Any]:
    """Return how a terminal stands.

    `payment` is the one that runs, or null; `armed` the scenario of the next one where somebody chose it live;
    `scenario` that of payments which choose none; `waiting_events` how many events wait for their delivery.
    """
    running = terminal.terminal.running
    return {
        "serial": terminal.settings.serial,
        "base_url": terminal.base_url,
        "powered": terminal.powered,
        "plugged": terminal.plugged,
        "certificate": terminal.certificate,
        "scenario": terminal.settings.scenario_name,
        "armed": terminal.terminal.armed,
        "payment": None
        if running is None
        else {
            "client_transaction_id": running.transaction,
            "operation": running.start.operation.name,
            "scenario": running.name,
            "status": running.status,
        },
        "waiting_events": terminal.waiting_events,
    }


# What the control API answers whom: programs of this machine, and no page in a browser.
#
# It answers only calls to a loopback name (a foreign name that was made to point here is refused), none that a page
# has sent, and a POST only with the content type that no form can send.


class Problem(Exception):
    """What a caller is told: HTTP status, code and words."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        """Say it."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Guard:
    """Lets calls through that a developer's program can have made, and no page in a browser."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        problem = _why_not(scope.get("method", "GET"), Headers(scope=scope))  # a WebSocket has none; none is served
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await told(problem)(scope, receive, send)


def _why_not(method: str, headers: Headers) -> Problem | None:
    if not _names_loopback(headers.get("host", "")):
        return Problem(HTTPStatus.MISDIRECTED_REQUEST, "FOREIGN_HOST", "call it by 127.0.0.1, [::1] or localhost")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        return Problem(HTTPStatus.FORBIDDEN, "FOREIGN_PAGE", "no web page may call this: use a program, such as curl")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and media_type != "application/json":
        return Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "NOT_JSON",
            "a POST needs content-type: application/json, also where its body is empty (curl --json '{}')",
        )
    return None


def _names_loopback(host: str) -> bool:
    """Whether the Host header of a call is a loopback address or localhost, with or without a port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_loopback(name)


def is_loopback(text: str) -> bool:
    """Whether a text is a loopback address."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def json_answer(value: object, status: int = 200) -> Response:
    """Answer JSON."""
    return Response(wire.encode(value), status, media_type="application/json")


def told(problem: Problem) -> Response:
    """Answer a problem: `code` and `message`."""
    return json_answer({"code": problem.code, "message": problem.message}, problem.status)


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


async def _power_cycle(terminal: Simulator, body: PowerCycle, begin: Begin) -> None:
    await terminal.power_off()
    begin(_on_after(terminal, body.seconds))


async def _on_after(terminal: Simulator, seconds: float) -> None:
    await terminal.clock.sleep(seconds)
    await terminal.power_on()


async def _move(terminal: Simulator, _body: object, _begin: Begin) -> None:
    await terminal.move()


async def _show_certificate(terminal: Simulator, body: Show, _begin: Begin) -> None:
    await terminal.show_certificate(body.which)


async def _put_paper_in(terminal: Simulator, _body: object, _begin: Begin) -> None:
    terminal.put_paper_in()


async def _arm(terminal: Simulator, body: Arm, _begin: Begin) -> None:
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

    return _Deed(nothing, do)


#: What can be asked of a terminal, by the last part of the path.
DEEDS: Mapping[str, _Deed] = {
    **{hand.value: _hand(hand) for hand in Hand},
    "scenario": _Deed(arm, _arm),
    "unplug": _Deed(nothing, _unplug),
    "plug": _Deed(nothing, _plug),
    "power-off": _Deed(nothing, _power_off),
    "power-on": _Deed(nothing, _power_on),
    "power-cycle": _Deed(power_cycle, _power_cycle),
    "move": _Deed(nothing, _move),
    "certificate": _Deed(show, _show_certificate),
    "paper": _Deed(nothing, _put_paper_in),
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
        body = read_advance(await _read(request))
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
