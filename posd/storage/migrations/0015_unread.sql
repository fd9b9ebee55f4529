-- Unread approvals have a table, and marks have an index, so that they do not slow down a start or a status.

CREATE TABLE unread_approvals (
    client_transaction_id TEXT PRIMARY KEY
) WITHOUT ROWID;

INSERT INTO unread_approvals
SELECT DISTINCT detail ->> '$' FROM marks
WHERE kind = 'unread' AND detail ->> '$' IN (SELECT client_transaction_id FROM transactions);
DELETE FROM marks WHERE kind = 'unread';
CREATE INDEX marks_kind ON marks (kind);
