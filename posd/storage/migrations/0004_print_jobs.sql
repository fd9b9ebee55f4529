-- Print jobs and their journal. The journal has every input of a job in order, with the raw bytes of its webhooks. The
-- state of a job can be derived from its first row and its journal. The feed (`changes`) also has lines of print jobs.

CREATE TABLE print_jobs (
    print_job_id       TEXT NOT NULL UNIQUE,
    terminal           TEXT,
    phase              TEXT NOT NULL CHECK (phase IN ('starting', 'in_doubt', 'active', 'final')),
    external_reference TEXT NOT NULL,
    document           TEXT NOT NULL,
    reprint_of         TEXT,
    sent_to            TEXT,
    queued             INTEGER NOT NULL,
    acknowledged       INTEGER NOT NULL,
    heard              INTEGER NOT NULL,
    terminal_job_id    TEXT,
    accepted_at        TEXT,
    status             TEXT CHECK (status IN ('PENDING', 'IN_PROGRESS', 'COMPLETED', 'FAILED')),
    error_code         TEXT,
    error_message      TEXT,
    reason             TEXT,
    decided_by         TEXT CHECK (decided_by IN ('webhook', 'poll', 'refusal', 'unsent', 'operator')),
    attention          TEXT NOT NULL,
    created_at         TEXT NOT NULL,
    updated_at         TEXT NOT NULL,
    revision           INTEGER NOT NULL,
    CHECK ((phase = 'final') = (decided_by IS NOT NULL))
);
CREATE INDEX print_jobs_newest ON print_jobs (created_at, print_job_id);
CREATE INDEX print_jobs_open ON print_jobs (terminal) WHERE phase <> 'final';
CREATE INDEX print_jobs_attention ON print_jobs (created_at) WHERE attention <> '[]';
CREATE INDEX print_jobs_reprints ON print_jobs (reprint_of) WHERE reprint_of IS NOT NULL;

-- `body`: the terminal's bytes, only for a webhook. `kind`: copy of the entry's kind, for searches.
CREATE TABLE print_journal (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    print_job_id TEXT NOT NULL REFERENCES print_jobs (print_job_id),
    at           TEXT NOT NULL,
    kind         TEXT NOT NULL,
    entry        TEXT NOT NULL,
    body         BLOB
);
CREATE INDEX print_journal_of_job ON print_journal (print_job_id);
