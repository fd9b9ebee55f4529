-- Fewer pages are written for each event. The events of a payment have consecutive numbers. The first event begins a
-- block of 64 numbers, and the payment's row has its number. No index entry is written for them. For a payment with
-- more events, or with events from before this migration, `together` is NULL, and an index finds the events. Numbers
-- are assigned without AUTOINCREMENT, which writes an additional page for each row. The next number is above all
-- numbers in the table and above that in sqlite_sequence (posd/storage/database_id.py), which is updated when the
-- newest row is deleted.

ALTER TABLE transactions ADD COLUMN first_event INTEGER;
ALTER TABLE events ADD COLUMN together INTEGER;

INSERT INTO sqlite_sequence (name, seq)
SELECT column1, 0 FROM (VALUES ('events'), ('journal'), ('changes'))
 WHERE column1 NOT IN (SELECT name FROM sqlite_sequence);

-- The stored form of rows and entries does not change, neither in the table nor in the indexes. A table of events may
-- have gigabytes, and rewriting it at a start would take too long.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, ' AUTOINCREMENT', '')
 WHERE type = 'table' AND name IN ('events', 'journal', 'changes');
-- A search for events of a deleted payment would read all events.
UPDATE sqlite_schema SET sql = replace(sql, ' REFERENCES transactions (client_transaction_id)', '')
 WHERE type = 'table' AND name = 'events';
UPDATE sqlite_schema SET sql = sql || ' WHERE together IS NULL'
 WHERE type = 'index' AND name = 'events_of_transaction';
-- The condition has the same rows as before: an outcome is set at the end, and the phase changes while a transaction is
-- open.
UPDATE sqlite_schema SET sql = replace(sql, 'phase <> ''final''', 'outcome IS NULL')
 WHERE type = 'index' AND name = 'transactions_open';
PRAGMA writable_schema = RESET;

CREATE TRIGGER events_numbers BEFORE DELETE ON events WHEN old.seq = (SELECT max(seq) FROM events) BEGIN
    UPDATE sqlite_sequence SET seq = max(seq, old.seq) WHERE name = 'events';
END;
CREATE TRIGGER journal_numbers BEFORE DELETE ON journal WHEN old.seq = (SELECT max(seq) FROM journal) BEGIN
    UPDATE sqlite_sequence SET seq = max(seq, old.seq) WHERE name = 'journal';
END;
CREATE TRIGGER changes_numbers BEFORE DELETE ON changes WHEN old.seq = (SELECT max(seq) FROM changes) BEGIN
    UPDATE sqlite_sequence SET seq = max(seq, old.seq) WHERE name = 'changes';
END;

-- Events of each payment, both in blocks and scattered.
CREATE VIEW payment_events AS
SELECT t.client_transaction_id, e.seq, e.event_id, e.received_at, e.verdict, e.status, e.body
  FROM transactions t CROSS JOIN events e ON e.seq >= t.first_event AND e.seq < t.first_event + 64
 WHERE e.client_transaction_id = t.client_transaction_id
 UNION ALL
SELECT client_transaction_id, seq, event_id, received_at, verdict, status, body FROM events WHERE together IS NULL;

-- Events without a payment, or not found by their payment. A sound database has none.
CREATE VIEW lost_events AS
SELECT e.seq, e.client_transaction_id
  FROM events e LEFT JOIN transactions t ON t.client_transaction_id = e.client_transaction_id
 WHERE t.client_transaction_id IS NULL
    OR e.together IS NOT NULL AND (t.first_event IS NULL OR e.seq NOT BETWEEN t.first_event AND t.first_event + 63);
