-- Journal: inputs of a transaction other than events, and decisions of operators. From journal and events, all state
-- can be derived again. Further columns are for reconciliation: whether the terminal ever sent anything about it, the
-- newest search, releases.

ALTER TABLE transactions ADD COLUMN heard INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transactions ADD COLUMN mismatched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transactions ADD COLUMN released INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transactions ADD COLUMN last_search TEXT;

UPDATE transactions SET heard = 1
 WHERE acknowledged OR attention LIKE '%"quarantined_event"%'
    OR client_transaction_id IN (SELECT client_transaction_id FROM events);

UPDATE transactions SET mismatched = 1 WHERE attention LIKE '%"serial_mismatch"%';

CREATE INDEX transactions_sale ON transactions (sale) WHERE sale IS NOT NULL;

-- `events_before`: number of events received before the entry. It orders entries and events.
CREATE TABLE journal (
    seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
    client_transaction_id TEXT NOT NULL REFERENCES transactions (client_transaction_id),
    at                    TEXT NOT NULL,
    events_before         INTEGER NOT NULL,
    entry                 TEXT NOT NULL
);
CREATE INDEX journal_of_transaction ON journal (client_transaction_id);

-- Replies to a start become entries of the journal.
ALTER TABLE transactions DROP COLUMN reply_status;
ALTER TABLE transactions DROP COLUMN reply_body;

-- Searches that have found a transaction: terminal and search (method, path, pointer) -> found transaction.
CREATE TABLE proven_searches (
    terminal              TEXT NOT NULL,
    search                TEXT NOT NULL,
    client_transaction_id TEXT NOT NULL,
    at                    TEXT NOT NULL,
    PRIMARY KEY (terminal, search, client_transaction_id)
) WITHOUT ROWID;

-- Marks: events that concern the whole database, for operators (for example a restore).
CREATE TABLE marks (
    at     TEXT NOT NULL,
    kind   TEXT NOT NULL,
    detail TEXT NOT NULL
);

ALTER TABLE changes ADD COLUMN terminal TEXT;

-- Transactions up to this rowid are from before the journal, and cannot be derived again.
INSERT INTO marks (at, kind, detail)
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'journal_begins', coalesce(max(rowid), 0) FROM transactions;
