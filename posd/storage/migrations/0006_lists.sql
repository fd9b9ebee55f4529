-- Each list is walked newest first in an index of its own order, so that a page of it costs the same however much is
-- stored, and what is looked for of one terminal is found among its own.

DROP INDEX transactions_open;
CREATE INDEX transactions_open ON transactions (created_at, client_transaction_id) WHERE phase <> 'final';
DROP INDEX transactions_attention;
CREATE INDEX transactions_attention ON transactions (created_at, client_transaction_id, terminal)
 WHERE attention <> '[]';
DROP INDEX transactions_sale;
CREATE INDEX transactions_sale ON transactions (sale, created_at, client_transaction_id) WHERE sale IS NOT NULL;
CREATE INDEX transactions_terminal ON transactions (terminal, created_at, client_transaction_id);

DROP INDEX print_jobs_open;
CREATE INDEX print_jobs_open ON print_jobs (created_at, print_job_id) WHERE phase <> 'final';
DROP INDEX print_jobs_attention;
CREATE INDEX print_jobs_attention ON print_jobs (created_at, print_job_id) WHERE attention <> '[]';
CREATE INDEX print_jobs_terminal ON print_jobs (terminal, created_at, print_job_id) WHERE terminal IS NOT NULL;
CREATE INDEX print_jobs_external_reference ON print_jobs (external_reference, created_at, print_job_id)
 WHERE external_reference <> '';

-- What ended against the lifecycle and was not asked for yet: a start asks. Nearly always empty, so that it costs nothing.
CREATE INDEX transactions_to_ask_once ON transactions (created_at)
 WHERE phase = 'final' AND last_search IS NULL AND instr(attention, '"illegal_transition"') > 0;
