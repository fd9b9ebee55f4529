-- Two ids of print jobs that differ only in case are the same id. Earlier versions accepted both. A sale is stored in
-- composed form (NFC).

CREATE INDEX print_jobs_any_case ON print_jobs (print_job_id COLLATE NOCASE);
CREATE INDEX pruned_print_jobs_any_case ON pruned_print_jobs (print_job_id COLLATE NOCASE);
UPDATE transactions SET sale = composed(sale) WHERE sale GLOB '*[^ -~]*';
