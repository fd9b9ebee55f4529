-- Less is written for each event. The events of a payment lie together, by their numbers: the first begins a block of 64
-- that is its own, and the row of the payment has its number. No index is written for them. Where a payment has more, or
-- had events before this, `together` is NULL, and the index finds them.
-- Numbers come without AUTOINCREMENT, which writes a page of its own for each row: the next one is above all that are
-- there and what sqlite_sequence has (posd/storage/database_id.py), which is written where the newest row goes.

ALTER TABLE transactions ADD COLUMN first_event INTEGER;
ALTER TABLE events ADD COLUMN together INTEGER;

INSERT INTO sqlite_sequence (name, seq)
SELECT column1, 0 FROM (VALUES ('events'), ('journal'), ('changes'))
 WHERE column1 NOT IN (SELECT name FROM sqlite_sequence);

-- None of this changes how a row or an entry is stored: the same is in the table and in both indexes as before. A table
-- of events may be gigabytes, which no start has the time to write anew.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, ' AUTOINCREMENT', '')
 WHERE type = 'table' AND name IN ('events', 'journal', 'changes');
-- To look for events of a payment that goes would read all of them.
UPDATE sqlite_schema SET sql = replace(sql, ' REFERENCES transactions (client_transaction_id)', '')
 WHERE type = 'table' AND name = 'events';
UPDATE sqlite_schema SET sql = sql || ' WHERE together IS NULL'
 WHERE type = 'index' AND name = 'events_of_transaction';
-- The same rows: an outcome comes with the end, and the phase of what is open changes.
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

-- The events of each payment, wherever they are.
CREATE VIEW payment_events AS
SELECT t.client_transaction_id, e.seq, e.event_id, e.received_at, e.verdict, e.status, e.body
  FROM transactions t CROSS JOIN events e ON e.seq >= t.first_event AND e.seq < t.first_event + 64
 WHERE e.client_transaction_id = t.client_transaction_id
 UNION ALL
SELECT client_transaction_id, seq, event_id, received_at, verdict, status, body FROM events WHERE together IS NULL;

-- Those that are of no payment, or that theirs does not find: in a sound database there are none.
CREATE VIEW lost_events AS
SELECT e.seq, e.client_transaction_id
  FROM events e LEFT JOIN transactions t ON t.client_transaction_id = e.client_transaction_id
 WHERE t.client_transaction_id IS NULL
    OR e.together IS NOT NULL AND (t.first_event IS NULL OR e.seq NOT BETWEEN t.first_event AND t.first_event + 63);
