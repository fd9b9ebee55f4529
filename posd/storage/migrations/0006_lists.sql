-- Each list is read newest first by an index with its order. So the time of a page does not depend on the number of
-- stored rows. A list of one terminal has its own index.

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

-- Ended transactions that broke the lifecycle and for which posd has not searched. A start searches for them. The index
-- is nearly always empty.
CREATE INDEX transactions_to_ask_once ON transactions (created_at)
 WHERE phase = 'final' AND last_search IS NULL AND instr(attention, '"illegal_transition"') > 0;
