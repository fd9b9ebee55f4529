"""Control API, with which a developer controls the terminals: HTTP and JSON on loopback."""

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any, get_args

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from posd.simulator.app import json_response, read_body, response, served
from posd.simulator.clock import Tasks, VirtualClock
from posd.simulator.messages import Answer, coded, plain
from posd.simulator.network import Listener, bind, url
from posd.simulator.scenario import CHOICE, Certificate, Scenario, Story, payments, prints
from posd.simulator.simulator import Simulator
from posd.simulator.terminal import ManualControl
from posd.simulator.wire import Refused, SettingsError

#: Default duration of a power cycle, in terminal seconds.
POWER_CYCLE_SECONDS = 5.0
HELP = """\
The control API of posd simulate. A POST needs content-type: application/json (curl --json '{}').

GET  /scenarios                            what can happen: name, kind, summary, when, and what chooses it
GET  /terminals                            all terminals, each as below
GET  /terminals/SERIAL                     its state: payment, armed scenario, power, network, certificate, ...
GET  /terminals/SERIAL/ledger              what really happened
GET  /terminals/SERIAL/prints              what was printed
POST /terminals/SERIAL/scenario            {"name": "decline"}: what happens to the next payment alone, or
                                           {"name": "print:fails"}: to the next print job alone; null: as usual
POST /terminals/SERIAL/present-card        the card is tapped; then it waits for approve or decline
POST /terminals/SERIAL/insert-card         the chip is read, the PIN entered; then it waits for approve or decline
POST /terminals/SERIAL/approve             the acquirer approves
POST /terminals/SERIAL/decline             the acquirer declines
POST /terminals/SERIAL/reject              the wait for the card, or for the PIN, has run out
POST /terminals/SERIAL/cancel              the cardholder cancels
POST /terminals/SERIAL/unplug              it loses the network; its events wait
POST /terminals/SERIAL/plug                it is back on the network; it sends its waiting events
POST /terminals/SERIAL/power-off           it loses power, and forgets the payment that runs
POST /terminals/SERIAL/power-on            it starts again
POST /terminals/SERIAL/power-cycle         {"seconds": 5}: off, and on again after this many terminal seconds
POST /terminals/SERIAL/move                it gets another address (port), and announces it
POST /terminals/SERIAL/certificate         {"which": "own" | "changed" | "expired" | "self-signed" | "wrong-name"}
POST /terminals/SERIAL/paper               put paper in
GET  /clock                                the time, and whether it is virtual
POST /clock                                {"advance": 60}: with --virtual, let this many seconds pass
"""
#: Maximum size of a body, in bytes.
MAX_BODY_BYTES = 65_536


@asynccontextmanager
async def controlled(terminals: Mapping[str, Simulator], host: str, port: int) -> AsyncIterator[str]:
    """Serve the control API during the block, and yield its URL. The terminals have one common clock.

    Raise SettingsError if `host` is not a loopback address, or cannot be used.
    """
    if not is_loopback(host):
        raise SettingsError(f"the control API listens on loopback alone, for example 127.0.0.1:6870, not on {host}")
    tasks = Tasks()  # actions that take terminal time run after the reply
    listener, bound = Listener(_app(terminals, tasks), None), bind(host, port)
    try:
        listener.start(bound)
    except SettingsError:
        bound.close()
        raise
    try:
        yield url("http", host, bound.getsockname()[1])
    finally:
        await listener.stop()
        await tasks.stop()


#: Seconds in a request, at most eleven days.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


def _body(*members: tuple[Any, ...]) -> type[msgspec.Struct]:
    """Return a struct type for the JSON body of a request.

    `members`: name, type, and default if there is one. The type refuses any other member, and the error names it.
    """
    return msgspec.defstruct("Body", members, frozen=True, forbid_unknown_fields=True)


def listed_scenarios() -> list[dict[str, Any]]:
    """Return the catalogue of scenarios: name, kind (payment or print), summary, when, and how a request chooses it.

    A request chooses it by `amount`, `metadata` or `external_reference`. If all three are null, an option or the
    control API chooses it.
    """
    catalogues: dict[str, Mapping[str, Story]] = {"payment": payments(), "print": prints()}
    return [
        {"name": name, "kind": kind, "summary": story.summary, "when": story.when, **_chosen_by(name, story)}
        for kind, catalogue in catalogues.items()
        for name, story in catalogue.items()
    ]


def _chosen_by(name: str, story: Story) -> dict[str, Any]:
    if not isinstance(story, Scenario):
        return {"amount": None, "metadata": None, "external_reference": f"{CHOICE}{name}"}
    metadata = None if story.out_of_reach else {"scenario": name}
    return {"amount": story.amount, "metadata": metadata, "external_reference": None}


def state_of(terminal: Simulator) -> dict[str, Any]:
    """Return the state of a terminal.

    `payment`: the running payment, or null. `armed` and `armed_print`: scenario of the next payment or print job, if
    the control API chose one. `scenario`: scenario of payments that choose none. `waiting_events`: events that wait for
    delivery.
    """
    running = terminal.terminal.running
    return {
        "serial": terminal.settings.serial,
        "base_url": terminal.base_url,
        "powered": terminal.switchboard.powered,
        "plugged": terminal.switchboard.plugged,
        "certificate": terminal.certificate,
        "scenario": terminal.settings.scenario_name,
        "armed": terminal.terminal.armed,
        "armed_print": terminal.printer.armed,
        "payment": None
        if running is None
        else {
            "client_transaction_id": running.transaction,
            "operation": running.start.operation.name,
            "scenario": running.name,
            "status": running.status,
        },
        "waiting_events": terminal.switchboard.waiting_events,
    }


def guarded(app: ASGIApp) -> ASGIApp:
    """Return an app that passes calls to `app`, but refuses calls that a web page makes in a browser.

    It refuses a Host header other than loopback, because a foreign name may resolve to this machine. It also refuses
    the headers that a browser adds to a page's call, and a POST with the content type of a form.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # A WebSocket has no method, and is not served.
        refused = _why_not(scope.get("method", "GET"), Headers(scope=scope))
        await (app if refused is None else response(_refuse(refused)))(scope, receive, send)

    return answer


def _why_not(method: str, headers: Headers) -> Refused | None:
    if not _names_loopback(headers.get("host", "")):
        return Refused(HTTPStatus.MISDIRECTED_REQUEST, "FOREIGN_HOST", "call it by 127.0.0.1, [::1] or localhost")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        return Refused(HTTPStatus.FORBIDDEN, "FOREIGN_PAGE", "no web page may call this: use a program, such as curl")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and media_type != "application/json":
        return Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "NOT_JSON",
            "a POST needs content-type: application/json, even if its body is empty (curl --json '{}')",
        )
    return None


def _names_loopback(host: str) -> bool:
    """Return whether a Host header is a loopback address or localhost, with or without a port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_loopback(name)


def is_loopback(text: str) -> bool:
    """Return whether a text is a loopback address."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


async def _power_cycle(terminal: Simulator, tasks: Tasks, seconds: float) -> None:
    await terminal.power_off()
    tasks.begin(terminal.power_cycle(seconds))


async def _arm(terminal: Simulator, _tasks: Tasks, name: str | None) -> None:
    try:
        begun = terminal.arm(name)
    except LookupError:
        raise Refused(
            HTTPStatus.NOT_FOUND, "UNKNOWN_SCENARIO", f"there is no scenario {name}: GET /scenarios lists them"
        ) from None
    if begun is not None:
        await begun


#: Action of a POST to a terminal: the type of its body, and the function that runs it. The function gets the terminal,
#: the `Tasks` for work after the reply, and the members of the body.
_Deed = tuple[type[msgspec.Struct], Callable[..., Awaitable[None]]]


def _plain(do: Callable[[Simulator], Awaitable[None]]) -> _Deed:
    return _body(), lambda terminal, _tasks: do(terminal)


def _hand(hand: ManualControl) -> _Deed:
    async def do(terminal: Simulator) -> None:
        if not terminal.terminal.hand(hand):
            raise Refused(
                HTTPStatus.CONFLICT, "NOT_NOW", f"{hand} is not possible in the present state: GET /terminals/SERIAL"
            )

    return _plain(do)


async def put_paper_in(terminal: Simulator) -> None:
    """Add paper."""
    terminal.printer.put_paper_in()


#: Actions on a terminal, by the last part of the path.
DEEDS: Mapping[str, _Deed] = {
    **{hand: _hand(hand) for hand in get_args(ManualControl)},
    "scenario": (_body(("name", str | None)), _arm),
    "unplug": _plain(lambda terminal: terminal.switchboard.set_plugged(False)),
    "plug": _plain(lambda terminal: terminal.switchboard.set_plugged(True)),
    "power-off": _plain(Simulator.power_off),
    "power-on": _plain(lambda terminal: terminal.switchboard.set_powered(True)),
    "power-cycle": (_body(("seconds", _Seconds, POWER_CYCLE_SECONDS)), _power_cycle),
    "move": _plain(lambda terminal: terminal.switchboard.move()),
    "certificate": (
        _body(("which", Certificate)),
        lambda terminal, _tasks, which: terminal.switchboard.show_certificate(which),
    ),
    "paper": _plain(put_paper_in),
}
_ADVANCE = _body(("advance", _Seconds))


def _app(terminals: Mapping[str, Simulator], tasks: Tasks) -> ASGIApp:
    clock = next(iter(terminals.values())).clock

    def terminal_of(request: Request) -> Simulator:
        serial = request.path_params["serial"]
        if serial not in terminals:
            raise Refused(HTTPStatus.NOT_FOUND, "UNKNOWN_TERMINAL", f"there is no terminal {serial}: GET /terminals")
        return terminals[serial]

    async def show_help(_: Request) -> Response:
        return PlainTextResponse(HELP)

    async def show_scenarios(_: Request) -> Response:
        return json_response(listed_scenarios())

    async def show_terminals(_: Request) -> Response:
        return json_response([state_of(terminal) for terminal in terminals.values()])

    async def show_terminal(request: Request) -> Response:
        path = request.path_params["serial"]
        serial, _, deed = path.rpartition("/")
        if path not in terminals and serial in terminals and deed in DEEDS:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "HTTP_405", f"{deed} needs a POST; GET / describes it")
        return json_response(state_of(terminal_of(request)))

    async def show_ledger(request: Request) -> Response:
        return json_response(list(terminal_of(request).ledger))

    async def show_prints(request: Request) -> Response:
        return json_response(terminal_of(request).printer.prints())

    async def show_clock(_: Request) -> Response:
        return json_response({"virtual": isinstance(clock, VirtualClock), "now": clock.now()})

    async def advance(request: Request) -> Response:
        body = await _read(request, _ADVANCE)
        if not isinstance(clock, VirtualClock):
            raise Refused(HTTPStatus.CONFLICT, "REAL_TIME", "time passes by itself here: start with --virtual")
        await clock.advance(*body)
        return await show_clock(request)

    async def do(request: Request) -> Response:
        terminal = terminal_of(request)
        deed = DEEDS.get(request.path_params["deed"])
        if deed is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        body, act = deed
        await act(terminal, tasks, *await _read(request, body))
        return json_response(state_of(terminal))

    at = "/terminals/{serial:path}"  # a serial can contain any character, even a slash
    routes = [
        Route("/", show_help),
        Route("/scenarios", show_scenarios),
        Route("/clock", show_clock),
        Route("/clock", advance, methods=["POST"]),
        Route("/terminals", show_terminals),
        Route(f"{at}/ledger", show_ledger),
        Route(f"{at}/prints", show_prints),
        Route(f"{at}/{{deed}}", do, methods=["POST"]),
        Route(at, show_terminal),
    ]
    return guarded(served(routes, _refuse))


async def _read(request: Request, kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Read a body and return its members. An empty body counts as an empty object."""
    try:
        raw = await read_body(request, MAX_BODY_BYTES, "TOO_LARGE")
        return msgspec.structs.astuple(msgspec.json.decode(raw or b"{}", type=kind))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "WRONG_BODY", str(error)) from error


def _refuse(refused: Refused) -> Answer:
    """Return the reply to a refused call, with status, code and message."""
    if refused.code == "HTTP_404":
        return plain(coded(refused.status, "UNKNOWN_PATH", "GET / lists all calls"))
    return plain(coded(refused.status, refused.code, refused.message))
