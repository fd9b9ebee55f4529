"""posd removes a callback token from a text in every form in which a terminal can echo the token.

posd removes nothing else.
"""

import asyncio
import gc
import html
import json
from collections.abc import Callable
from itertools import cycle
from time import thread_time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posd.base import ids
from posd.base.ids import Channel
from posd.base.redaction import REDACTED, Redactor
from tests.core.scenarios import IDENTITY
from tests.rig.secrets import ECHOES, undone

KEY, OLD = b"k" * 32, b"o" * 32
REDACTOR = Redactor([KEY, OLD])
SUBJECTS = {Channel.TRANSACTION: IDENTITY, Channel.PRINT: "receipt.7"}


@pytest.mark.parametrize("channel", Channel)
@pytest.mark.parametrize("origin", ["https://192.0.2.7:8443", "//[fe80::1]", "", "x://y/proxy"])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_callback_url_loses_its_token_in_every_form(channel: Channel, origin: str, echo: str) -> None:
    subject = SUBJECTS[channel]
    token = ids.token(KEY, channel, subject)
    url = ECHOES[echo](origin + ids.path(channel, subject, token))
    redacted = REDACTOR.text(f'{{"a": [1.00, "{url}"], "{url}": "\\u00e9 100%"}}', subject)
    assert token not in undone(redacted)
    assert redacted.count(REDACTED) == 2
    assert redacted.startswith('{"a": [1.00, "')
    assert list(json.loads(redacted).values())[1] == "é 100%"


#: Encoding of a URL in a text -> the forms of one character.
WRITERS: dict[str, tuple[Callable[[str], str], ...]] = {
    "JSON": (
        lambda char: json.dumps(char)[1:-1],
        lambda char: f"\\u{ord(char):04x}",
        lambda char: f"\\u{ord(char):04X}",
        lambda char: "\\/" if char == "/" else json.dumps(char)[1:-1],
    ),
    "a URL": (
        lambda char: "%25" if char == "%" else char,
        lambda char: f"%{ord(char):02x}",
        lambda char: f"%{ord(char):02X}",
    ),
    "HTML": (lambda char: {"/": "&#x2F;"}.get(char, char), lambda char: {"/": "&#47;"}.get(char, char)),
}
FORMS = st.one_of(st.lists(st.sampled_from(forms), min_size=1, max_size=8) for forms in WRITERS.values())


@example(
    Channel.TRANSACTION,
    [[WRITERS["JSON"][1]], list(WRITERS["JSON"][:2]), [WRITERS["a URL"][0], *WRITERS["a URL"][:2]]],
    "",
    "",
)
@given(st.sampled_from(Channel), st.lists(FORMS, min_size=1, max_size=3), st.text(), st.text())
def test_a_callback_path_is_found_in_any_encoding_of_its_characters(
    channel: Channel, levels: list[list[Callable[[str], str]]], before: str, after: str
) -> None:
    """Each level encodes the text of the previous level, and `Redactor` has no callback key.

    The first character gets the first form of a level, the next character the next form, and so on.
    """
    token = ids.token(KEY, channel, SUBJECTS[channel])
    written = ids.path(channel, SUBJECTS[channel], token)
    for forms in levels:
        written = "".join(form(char) for form, char in zip(cycle(forms), written, strict=False))
    text = f"{before} {written} {after}"
    redacted = Redactor().text(text)
    assert REDACTED in redacted
    assert token not in undone(html.unescape(redacted))


def test_a_token_is_removed_even_if_the_outermost_encoding_hides_a_backslash() -> None:
    """`%5c\\u0072` is the letter r in doubly encoded JSON inside a URL. The URL encodes one of two backslashes."""
    for channel in Channel:
        token = ids.token(KEY, channel, SUBJECTS[channel])
        path = ids.path(channel, SUBJECTS[channel], token)
        for at in range(len(path)):
            written = f"{path[:at]}%5c\\u{ord(path[at]):04x}{path[at + 1 :]}"
            redacted = Redactor().text(written)
            assert token[:8] not in redacted
            assert token[-8:] not in redacted


def test_without_a_key_even_a_partial_token_is_removed_from_a_url() -> None:
    url = ids.path(Channel.TRANSACTION, IDENTITY, ids.token(KEY, Channel.TRANSACTION, IDENTITY))
    for text in (url, url[:-9], ECHOES["percent"](url)[:-9]):
        assert undone(Redactor().text(f"{text} is not an address")) == url[:-43] + f"{REDACTED} is not an address"
    cut, left = (part.replace("w", "\\u0077") for part in (url[:-9], url[:-43]))
    assert Redactor().text(cut) == left + REDACTED


@pytest.mark.parametrize("form", [ECHOES["escaped"], ECHOES["percent, all"], ECHOES["plain"]])
@pytest.mark.parametrize("key", [KEY, OLD])
def test_a_token_is_recognized_if_its_id_is_in_the_document(form: Callable[[str], str], key: bytes) -> None:
    payment = ids.token(key, Channel.TRANSACTION, IDENTITY)
    job = ids.token(key, Channel.PRINT, "receipt.7")
    for document in (
        {"client_transaction_id": IDENTITY.upper(), "x": {f"key={payment}": payment}},
        {"print_job_id": "receipt.7", "x": [job, f"-{job}"]},
        {"printJobId": "receipt.7", "x": f"{job}, {job}"},
    ):
        text = json.dumps(document).replace(payment, form(payment)).replace(job, form(job))
        redacted = REDACTOR.text(text)
        assert redacted.count(REDACTED) == 2
        assert json.loads(redacted).keys() == document.keys()
    assert REDACTOR.text(f'"{form(payment)}"', IDENTITY) == f'"{REDACTED}"'


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"client_transaction_id": IDENTITY, "hash": "A" * 43, "key": "x" * 44, "p": "%41" * 50}),
        json.dumps({"id": IDENTITY, "t": ids.token(KEY, Channel.PRINT, "another job"), "n": 1e3, "e": "\\u0041" * 50}),
        "webhooks listen; /webhooks/transactions/ and /webhooks/orders/1/2",
    ],
)
def test_a_text_that_is_not_a_token_stays(text: str) -> None:
    assert REDACTOR.text(text) == text


@given(st.recursive(st.text() | st.none() | st.integers(), lambda item: st.dictionaries(st.text(), item), max_leaves=9))
def test_any_document_without_a_token_stays_unchanged(document: Any) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False), json.dumps(json.dumps(document))):
        assert REDACTOR.text(text) == text


@given(st.binary(), st.binary())
def test_any_bytes_around_a_token_stay(before: bytes, after: bytes) -> None:
    token = ids.token(KEY, Channel.TRANSACTION, IDENTITY).encode()
    body = b"%s /webhooks/transactions/%s/%s %s" % (before, IDENTITY.encode(), token, after)
    assert REDACTOR.body(body) == body.replace(token, REDACTED.encode())


@pytest.mark.parametrize(
    "apart", [b"", b'{"a": ["x", 1]}' * 3000, b"\\u0041," * 5000, b"%5C%75" * 9000 + b" "], ids=len
)
@pytest.mark.parametrize("escape", [lambda text: text, json.dumps, lambda text: json.dumps(json.dumps(text))])
async def test_in_a_long_body_a_token_is_recognized_even_if_its_id_is_far_away(apart: bytes, escape: Any) -> None:
    token = ids.token(KEY, Channel.TRANSACTION, IDENTITY)
    url = escape(f"https://192.0.2.1:8443/webhooks/transactions/{IDENTITY}/{token}").encode()
    body = b"%s %s, %s %s,%s%s" % (apart, token.encode(), apart, url, apart, IDENTITY.encode())
    redacted = REDACTOR.body(body)
    assert redacted == body.replace(token.encode(), REDACTED.encode())
    assert redacted == await REDACTOR.body_in_steps(body)


HOSTILE: dict[str, bytes] = {
    "escapes": b"\\u0041" * 43 + b" ",
    "escaped escapes": b"webhooks" + b"\\\\u0041",
    "backslashes": b"webhooks" + b"\\" * 200,
    "percent": b"webhooks%2525252525252541 ",
    "runs": b"A" * 43 + b" ",
    "ids": b"A" * 43 + b" id=7 print_job=x ",
    "addresses": b"webhooks/transactions/x/tok ",
    "no end": b"webhooks/transactions/" + b"a" * 1000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_page_blocks_the_loop_only_for_a_moment_at_a_time(name: str) -> None:
    body = HOSTILE[name] * (2_000_000 // len(HOSTILE[name]))
    # measure the time of this thread, because other processes may use the processors
    longest, last = 0.0, thread_time()

    def tick() -> None:
        nonlocal longest, last, timer
        longest, last = max(longest, thread_time() - last), thread_time()
        timer = loop.call_later(0.001, tick)

    loop = asyncio.get_running_loop()
    timer: asyncio.Handle = loop.call_soon(tick)
    gc.collect()
    gc.disable()  # the duration of a collection depends on the other objects of this process
    try:
        await REDACTOR.body_in_steps(body)
    finally:
        gc.enable()
    timer.cancel()
    assert longest < 0.05
