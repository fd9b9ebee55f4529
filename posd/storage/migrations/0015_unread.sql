-- Approvals that no program has read have a table, and marks an index: neither grows what a start or a status costs.

CREATE TABLE unread_approvals (
    client_transaction_id TEXT PRIMARY KEY
) WITHOUT ROWID;

INSERT INTO unread_approvals
SELECT DISTINCT detail ->> '$' FROM marks
WHERE kind = 'unread' AND detail ->> '$' IN (SELECT client_transaction_id FROM transactions);
DELETE FROM marks WHERE kind = 'unread';
CREATE INDEX marks_kind ON marks (kind);
