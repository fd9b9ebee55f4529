"""Callback tokens."""

import base64
import hashlib
import hmac

from hypothesis import given
from hypothesis import strategies as st

from posd.base.ids import Channel, path, token, verify
from tests.core.scenarios import IDENTITY

KEY, OLD = b"k" * 32, b"o" * 32


def test_a_token_is_valid_only_for_its_id_and_key() -> None:
    mine = token(KEY, Channel.TRANSACTION, IDENTITY)
    assert verify([KEY], Channel.TRANSACTION, IDENTITY, mine)
    assert not verify([KEY], Channel.TRANSACTION, IDENTITY.replace("7", "8"), mine)
    assert not verify([OLD], Channel.TRANSACTION, IDENTITY, mine)
    assert not verify([], Channel.TRANSACTION, IDENTITY, mine)
    assert not verify([KEY], Channel.TRANSACTION, IDENTITY, "\ud800")


def test_a_token_is_the_same_in_every_version() -> None:
    """Callbacks under way stay valid after an update of posd. Another channel has other tokens."""
    message = f"posd:transactions:{IDENTITY}".encode()
    expected = base64.urlsafe_b64encode(hmac.new(KEY, message, hashlib.sha256).digest()).decode().rstrip("=")
    assert token(KEY, Channel.TRANSACTION, IDENTITY) == expected


def test_an_older_key_stays_valid() -> None:
    assert verify([KEY, OLD], Channel.TRANSACTION, IDENTITY, token(OLD, Channel.TRANSACTION, IDENTITY))


@given(st.text())
def test_no_altered_or_invented_text_is_a_token(text: str) -> None:
    mine = token(KEY, Channel.TRANSACTION, IDENTITY)
    assert verify([KEY], Channel.TRANSACTION, IDENTITY, text) == (text == mine)


def test_the_path_of_a_callback_needs_no_escaping() -> None:
    mine = token(KEY, Channel.TRANSACTION, IDENTITY)
    assert path(Channel.TRANSACTION, IDENTITY, mine) == f"/webhooks/transactions/{IDENTITY}/{mine}"
    assert len(mine) == 43
    assert all(character.isalnum() or character in "-_" for character in mine)
