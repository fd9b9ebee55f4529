"""Authentication of calls: the bytes on the wire, and schemes that raise an error."""

import json
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from posd.base.clocks import wall
from posd.config import Config, ConfigError, load
from posd.terminals.attempt import CallFailed, NotSent
from posd.terminals.authentication import Authentication, OutgoingRequest, authenticate, headers, none
from posd.terminals.client import TerminalAccess, authentication_of
from posd.terminals.fleet import Fleet
from tests.rig.access import access
from tests.rig.daemon import toml
from tests.rig.shop import answering
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

SECRET = "hunter2-hunter2"


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    async with scripted_terminal(tmp_path) as terminal:
        terminal.start = answering(200, b"{}")
        yield terminal


@asynccontextmanager
async def device(terminal: ScriptedTerminal, authentication: Authentication) -> AsyncIterator[TerminalAccess]:
    device = access(terminal, authentication)
    yield device


def raises(_request: OutgoingRequest) -> OutgoingRequest:
    raise ValueError(f"{SECRET} is not a key")


def adds(**values: str) -> Authentication:
    return lambda request: request.with_headers({name.replace("_", "-"): value for name, value in values.items()})


def names_nothing(request: OutgoingRequest) -> OutgoingRequest:
    return replace(request, headers={**request.headers, f"{SECRET} x": "y"})


def goes_nowhere(request: OutgoingRequest) -> OutgoingRequest:
    return replace(request, url=f"gopher://{SECRET}")


#: A failing scheme -> a word of the reason. A signature from Python's `base64.encodebytes` ends with a line feed.
FAILING: dict[str, tuple[Authentication, str]] = {
    "raises": (raises, "could not be authenticated (ValueError)"),
    "ends its value with a line feed": (adds(X_Key=f"{SECRET}\n"), "a header that cannot be sent"),
    "smuggles a header": (adds(X_Key=f"{SECRET}\r\nX-Other: 1"), "a header that cannot be sent"),
    "is not ASCII": (adds(X_Key=f"{SECRET}é"), "a header that cannot be sent"),
    "names no header": (names_nothing, "a header that cannot be sent"),
    "makes no URL": (goes_nowhere, "neither http nor https"),
}


@pytest.mark.parametrize("case", FAILING)
async def test_a_failing_scheme_sends_nothing_and_reveals_no_secret(
    terminal: ScriptedTerminal, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    authentication, word = FAILING[case]
    written = []
    async with device(terminal, authentication) as called:
        with capture_logs() as lines:
            attempt = await called.call("POST", f"{terminal.base_url}/x", b"{}", written=lambda: written.append(1))
    assert isinstance(attempt, NotSent)
    assert word in attempt.reason
    assert SECRET not in attempt.reason + repr(attempt) + json.dumps(lines) + caplog.text
    assert (terminal.requests, written) == ([], [])


async def test_no_printed_form_of_a_call_shows_a_secret(tmp_path: Path) -> None:
    request = OutgoingRequest("POST", f"https://t/x?signature={SECRET}", {"X-Key": SECRET}, SECRET.encode())
    authentication = headers({"X-Key": SECRET})
    called = access(None, authentication)
    shown = [repr(request), str(request), repr(authentication), repr(called), repr(vars(called))]
    with pytest.raises(CallFailed) as caught:
        authenticate(request, raises)
    shown += [repr(caught.value), "".join(traceback.format_exception(caught.value))]
    assert SECRET not in "".join(shown)


def one(tmp_path: Path, entry: str) -> Config:
    (tmp_path / "config.toml").write_text(toml(tmp_path, f'[[terminals]]\nserial = "SN-1"\n{entry}\n'))
    return load(tmp_path / "config.toml")


def test_the_secrets_of_a_terminal_are_read_once(tmp_path: Path) -> None:
    request = OutgoingRequest("GET", "https://t/x", {"accept": "application/json"})
    assert authentication_of(one(tmp_path, "").terminals[0], wall) is none
    (tmp_path / "token").write_text("old")
    authentication = authentication_of(one(tmp_path, 'headers = {X-Key = {file = "token"}}').terminals[0], wall)
    (tmp_path / "token").write_text("new")
    assert authentication(request).headers == {"accept": "application/json", "X-Key": "old"}


def test_a_secret_that_is_unusable_at_the_start_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    config = one(tmp_path, 'headers = {X-Key = {file = "token"}}')
    (tmp_path / "token").write_text(f"{SECRET}\n{SECRET}")
    with pytest.raises(ConfigError, match="token: is not one line") as caught:
        Fleet(config.terminals, config.profiles)
    told = "".join(traceback.format_exception(caught.value))
    assert "token: is not one line" in told
    assert SECRET not in told
