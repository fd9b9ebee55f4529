-- Two ids of print jobs that differ by case alone are one; earlier versions took both. A sale is kept composed (NFC).

CREATE INDEX print_jobs_any_case ON print_jobs (print_job_id COLLATE NOCASE);
CREATE INDEX pruned_print_jobs_any_case ON pruned_print_jobs (print_job_id COLLATE NOCASE);
UPDATE transactions SET sale = composed(sale) WHERE sale GLOB '*[^ -~]*';
