-- Tombstones of removed records, because an id that was started once is never started again. They contain no personal
-- data.

CREATE TABLE pruned_transactions (
    client_transaction_id TEXT PRIMARY KEY,
    terminal              TEXT NOT NULL,
    type                  TEXT,
    result                TEXT NOT NULL,
    ended_on              TEXT NOT NULL  -- the day, in UTC
) WITHOUT ROWID;

CREATE TABLE pruned_print_jobs (
    print_job_id TEXT PRIMARY KEY,
    terminal     TEXT,
    status       TEXT,
    ended_on     TEXT NOT NULL
) WITHOUT ROWID;
