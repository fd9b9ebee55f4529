"""Words of the till's metadata, by which lists find their transactions: an index over what no column has.

A word is the beginning of `key=value`: a text by its value, all else as it stands in the JSON. More than one key or
transaction may have it; who looks by it looks at the transactions too.
"""

import sqlite3

import msgspec

#: Characters of a word that are kept.
LENGTH = 100

_METADATA = msgspec.json.Decoder(dict[str, msgspec.Raw])


def word(key: str, text: str) -> str:
    """Return the word of a key and its value."""
    return f"{key}={text}"[:LENGTH]


def keep(db: sqlite3.Connection, identity: str, created_at: str, metadata: bytes) -> None:
    """Write down the words of a new transaction. Nothing is written where it has no metadata."""
    if metadata != b"{}":
        rows = {(item, created_at, identity) for item in _words(metadata)}
        db.executemany("INSERT OR IGNORE INTO transaction_words (word, at, id) VALUES (?,?,?)", sorted(rows))


def drop(db: sqlite3.Connection, identity: str, created_at: str, metadata: bytes) -> None:
    """Take the words of a transaction out: what it has now is to be kept anew, or it goes itself."""
    rows = [(item, created_at, identity) for item in _words(metadata)]
    db.executemany("DELETE FROM transaction_words WHERE (word, at, id) = (?,?,?)", rows)


def _words(metadata: bytes) -> set[str]:
    try:
        members = _METADATA.decode(metadata)
        return {word(key, _text(bytes(value).strip())) for key, value in members.items()}
    except (msgspec.DecodeError, UnicodeError):  # of a damaged file: it can be found otherwise
        return set()


def _text(value: bytes) -> str:
    return msgspec.json.decode(value, type=str) if value.startswith(b'"') else value.decode()
