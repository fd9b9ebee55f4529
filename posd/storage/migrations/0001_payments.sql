-- Transactions, their events, leases, quarantine, and the history of every change (the feed).
-- Enum values are the wire's words; money stays text inside the JSON objects of the till.

CREATE TABLE transactions (
    client_transaction_id TEXT NOT NULL UNIQUE,
    terminal              TEXT NOT NULL,
    type                  TEXT,
    sale                  TEXT,
    phase                 TEXT NOT NULL CHECK (phase IN ('starting', 'in_doubt', 'active', 'final')),
    amount                TEXT NOT NULL,
    metadata              TEXT NOT NULL,
    options               TEXT NOT NULL,
    transaction_reference TEXT,
    original              TEXT,
    repeat                INTEGER NOT NULL,
    sent_to               TEXT,
    acknowledged          INTEGER NOT NULL,
    trail                 TEXT NOT NULL,
    reading_type          TEXT,
    outcome               TEXT,
    withdrawn             TEXT,
    final_event           INTEGER,
    attention             TEXT NOT NULL,
    reply_status          INTEGER,
    reply_body            BLOB,
    created_at            TEXT NOT NULL,
    updated_at            TEXT NOT NULL,
    revision              INTEGER NOT NULL,
    CHECK ((phase = 'final') = (outcome IS NOT NULL))
);
CREATE INDEX transactions_newest ON transactions (created_at, client_transaction_id);
CREATE INDEX transactions_open ON transactions (terminal) WHERE phase <> 'final';
CREATE INDEX transactions_attention ON transactions (created_at) WHERE attention <> '[]';

CREATE TABLE events (
    seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
    client_transaction_id TEXT NOT NULL REFERENCES transactions (client_transaction_id),
    event_id              TEXT NOT NULL,
    received_at           TEXT NOT NULL,
    verdict               TEXT NOT NULL,
    status                TEXT NOT NULL,
    body                  BLOB NOT NULL
);
CREATE INDEX events_of_transaction ON events (client_transaction_id, event_id);

-- Leases: the claim of one open transaction on its terminal. There is at most one row for each terminal.
CREATE TABLE leases (
    terminal              TEXT PRIMARY KEY,
    client_transaction_id TEXT NOT NULL REFERENCES transactions (client_transaction_id)
) WITHOUT ROWID;

-- Authentic callbacks that were refused, with their raw bytes.
CREATE TABLE quarantine (
    id                    INTEGER PRIMARY KEY AUTOINCREMENT,
    received_at           TEXT NOT NULL,
    channel               TEXT NOT NULL,
    subject               TEXT NOT NULL,
    reason                TEXT NOT NULL,
    peer                  TEXT NOT NULL,
    body                  BLOB NOT NULL
);
CREATE INDEX quarantine_of_subject ON quarantine (channel, subject);

-- One row for every change of every transaction, in the commit of that change: history and feed in one.
CREATE TABLE changes (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    at        TEXT NOT NULL,
    kind      TEXT NOT NULL,
    id        TEXT NOT NULL,
    reason    TEXT NOT NULL,
    phase     TEXT NOT NULL,
    status    TEXT,
    result    TEXT,
    attention TEXT NOT NULL
);
