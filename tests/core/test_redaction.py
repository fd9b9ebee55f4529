"""A callback token is taken out of a text in every form in which a terminal can echo it, and nothing else is."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base import ids
from posd.base.ids import Channel
from posd.base.redaction import REDACTED, Redactor
from tests.core.scenarios import IDENTITY
from tests.support.secrets import ECHOES, undone

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


def test_what_is_left_of_a_token_is_taken_out_of_a_url_without_a_key() -> None:
    url = ids.path(Channel.TRANSACTION, IDENTITY, ids.token(KEY, Channel.TRANSACTION, IDENTITY))
    for text in (url, url[:-9], ECHOES["percent"](url)[:-9]):
        assert undone(Redactor().text(f"{text} is no address")) == url[:-43] + f"{REDACTED} is no address"


@pytest.mark.parametrize("form", [ECHOES["escaped"], ECHOES["percent, all"], ECHOES["plain"]])
@pytest.mark.parametrize("key", [KEY, OLD])
def test_a_token_without_its_url_is_known_by_an_id_in_the_text_or_beside_it(
    form: Callable[[str], str], key: bytes
) -> None:
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
def test_what_is_no_token_stays(text: str) -> None:
    assert REDACTOR.text(text) == text


@given(st.recursive(st.text() | st.none() | st.integers(), lambda item: st.dictionaries(st.text(), item), max_leaves=9))
def test_any_document_stays_as_it_is(document: Any) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False), json.dumps(json.dumps(document))):
        assert REDACTOR.text(text) == text


@given(st.binary(), st.binary())
def test_any_bytes_around_a_token_stay(before: bytes, after: bytes) -> None:
    token = ids.token(KEY, Channel.TRANSACTION, IDENTITY).encode()
    body = b"%s /webhooks/transactions/%s/%s %s" % (before, IDENTITY.encode(), token, after)
    assert REDACTOR.body(body) == body.replace(token, REDACTED.encode())
