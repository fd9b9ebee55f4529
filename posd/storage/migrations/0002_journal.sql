-- What posd learnt and what people did about a transaction, beside its events: with both, everything else can be
-- derived again. And what reconciliation keeps: whether anything was ever heard of it, the newest search, releases.

ALTER TABLE transactions ADD COLUMN heard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transactions ADD COLUMN mismatched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transactions ADD COLUMN released INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transactions ADD COLUMN last_search TEXT;

UPDATE transactions SET heard = 1
 WHERE acknowledged OR attention LIKE '%"quarantined_event"%'
    OR client_transaction_id IN (SELECT client_transaction_id FROM events);

UPDATE transactions SET mismatched = 1 WHERE attention LIKE '%"serial_mismatch"%';

CREATE INDEX transactions_sale ON transactions (sale) WHERE sale IS NOT NULL;

-- `events_before` is how many events of the transaction had come: it puts both into one order.
CREATE TABLE journal (
    seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
    client_transaction_id TEXT NOT NULL REFERENCES transactions (client_transaction_id),
    at                    TEXT NOT NULL,
    events_before         INTEGER NOT NULL,
    entry                 TEXT NOT NULL
);
CREATE INDEX journal_of_transaction ON journal (client_transaction_id);

-- Replies to a start are entries of the journal from now on.
ALTER TABLE transactions DROP COLUMN reply_status;
ALTER TABLE transactions DROP COLUMN reply_body;

-- Searches that have found something: terminal and what was asked (method, path, pointer) -> the transaction found.
CREATE TABLE proven_searches (
    terminal              TEXT NOT NULL,
    search                TEXT NOT NULL,
    client_transaction_id TEXT NOT NULL,
    at                    TEXT NOT NULL,
    PRIMARY KEY (terminal, search, client_transaction_id)
) WITHOUT ROWID;

-- What happened to the database as a whole and a person should know (a restore).
CREATE TABLE marks (
    at     TEXT NOT NULL,
    kind   TEXT NOT NULL,
    detail TEXT NOT NULL
);

ALTER TABLE changes ADD COLUMN terminal TEXT;

-- Transactions up to this rowid are of before the journal and cannot be derived again.
INSERT INTO marks (at, kind, detail)
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'journal_begins', coalesce(max(rowid), 0) FROM transactions;
