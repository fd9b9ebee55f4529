"""Words of the till's metadata, by which lists find their transactions: an index over what no column has.

A word is the beginning of `key=value`: a text by its value, all else as it stands in the JSON. More than one key or
transaction may have it; who looks by it looks at the transactions too.
"""

import sqlite3

#: Characters of a word that are kept.
LENGTH = 100

#: As migration 0007 has it, of one transaction: the words, by its metadata, `created_at` and id.
_WORDS = f"""
SELECT substr(e.key || '=' || CASE e.type WHEN 'text' THEN e.atom ELSE :metadata -> e.fullkey END, 1, {LENGTH}),
       :at, :id
  FROM json_each(CASE WHEN json_valid(:metadata) THEN :metadata ELSE '{{}}' END) e
 WHERE instr(e.key, '"') = 0 AND instr(e.key, '\\') = 0
"""  # noqa: S608 - a constant of this file
_KEEP = f"INSERT OR IGNORE INTO transaction_words (word, at, id) {_WORDS}"
_DROP = f"DELETE FROM transaction_words WHERE (word, at, id) IN ({_WORDS})"  # noqa: S608


def word(key: str, text: str) -> str:
    """Return the word of a key and its value."""
    return f"{key}={text}"[:LENGTH]


def keep(db: sqlite3.Connection, identity: str, created_at: str, metadata: bytes) -> None:
    """Write down the words of a new transaction. Nothing is written where it has no metadata."""
    if metadata != b"{}":
        db.execute(_KEEP, _values(identity, created_at, metadata)).close()


def drop(db: sqlite3.Connection, identity: str, created_at: str, metadata: bytes) -> None:
    """Take the words of a transaction out: what it has now is to be kept anew, or it goes itself."""
    db.execute(_DROP, _values(identity, created_at, metadata)).close()


def _values(identity: str, created_at: str, metadata: bytes) -> dict[str, str]:
    # It is UTF-8, except in a damaged file.
    return {"metadata": metadata.decode(errors="replace"), "at": created_at, "id": identity}
