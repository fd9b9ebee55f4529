-- One unusable change can be stored separately, and the other changes of its message are stored.

ALTER TABLE posd.unreadable ADD COLUMN seq bigint NOT NULL DEFAULT 0;  -- of the change; 0: all of the message
ALTER TABLE posd.unreadable DROP CONSTRAINT unreadable_pkey;
ALTER TABLE posd.unreadable ADD PRIMARY KEY (stream_seq, received_at, seq);

-- A lane can have many databases, and the state of a payment depends on their order.

CREATE INDEX databases_by_ordinal ON posd.databases (merchant, lane, ordinal);
DROP INDEX posd.databases_of_lane;

-- Data that earlier versions accepted: times outside Python's range, and amounts that are no numbers.

UPDATE posd.lanes SET complete_to_at = NULL WHERE complete_to_at NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z';
UPDATE posd.databases SET state_as_of = NULL WHERE state_as_of NOT BETWEEN '1970-01-01Z' AND '9999-01-01Z';

CREATE OR REPLACE VIEW posd.totals AS
SELECT (counts_at AT TIME ZONE current_setting('TimeZone'))::date AS day, merchant, lane, kind,
  count(*) AS payments, sum(amount) AS total, currency
FROM posd.counted WHERE amount > '-Infinity' AND amount < 'Infinity' GROUP BY 1, 2, 3, 4, currency;

CREATE OR REPLACE FUNCTION posd.counts_at(occurred_at text, created_at timestamptz, decided_at timestamptz)
RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE said timestamptz;
BEGIN
  IF occurred_at IS NULL OR decided_at IS NULL OR occurred_at !~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)$' THEN
    RETURN created_at;
  END IF;
  said := occurred_at::timestamptz;
  IF said >= created_at - interval '1 hour' AND said <= least(decided_at + interval '1 hour', created_at + interval '2 days') THEN
    RETURN said;
  END IF;
  RETURN created_at;
EXCEPTION WHEN data_exception THEN  -- all of class 22
  RETURN created_at;
END
$$;

-- Missing numbers, which are above `after_seq` and below `before_seq`. `after_seq` is NULL if the first number of the
-- database is unknown. `counted`: every row below the frontiers is counted; otherwise the frontiers are used.
CREATE FUNCTION posd.missing(counted boolean)
RETURNS TABLE (merchant text, lane text, database_id text, after_seq bigint, before_seq bigint)
LANGUAGE sql STABLE AS $$
WITH known AS (
  SELECT e.*, counted AND e.frontier - e.first_seq + 1 <> (
    SELECT count(*) FROM posd.changes c
    WHERE c.database_id = e.database_id AND c.seq BETWEEN e.first_seq AND e.frontier
  ) AS looked_into
  FROM posd.known_ends e
), behind AS (
  SELECT database_id, merchant, lane, first_seq, greatest(end_seq, frontier) AS end_seq,
    coalesce(CASE WHEN NOT coalesce(looked_into, false) THEN frontier END, first_seq - 1) AS start
  FROM known WHERE looked_into OR first_seq IS NULL OR coalesce(frontier, first_seq - 1) < end_seq
), covered AS (
  SELECT c.database_id, c.seq AS from_seq, c.seq AS to_seq FROM posd.changes c JOIN behind b USING (database_id)
  WHERE c.seq > coalesce(b.start, 0)
  UNION ALL
  SELECT l.database_id, l.from_seq, l.to_seq FROM posd.lost l JOIN behind b USING (database_id)
  WHERE l.to_seq > coalesce(b.start, 0)
  UNION ALL
  SELECT b.database_id, b.end_seq + 1, b.end_seq + 1 FROM behind b
), steps AS (
  SELECT c.database_id, c.from_seq, max(c.to_seq) OVER (
    PARTITION BY c.database_id ORDER BY c.from_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before FROM covered c
)
SELECT b.merchant, b.lane, b.database_id, coalesce(s.before, b.start), s.from_seq
FROM steps s JOIN behind b USING (database_id)
WHERE s.from_seq > coalesce(s.before, b.start) + 1 OR (b.first_seq IS NULL AND s.before IS NULL)
$$;

CREATE OR REPLACE VIEW posd.gaps AS SELECT * FROM posd.missing(false);

-- Delete changes that arrived before a time, and record them as deleted, so that they do not count as missing. Return
-- the number of deleted changes.
CREATE FUNCTION posd.delete_changes(earlier_than timestamptz) RETURNS bigint LANGUAGE sql AS $$
WITH gone AS (
  DELETE FROM posd.changes WHERE at < earlier_than RETURNING database_id, seq
), noted AS (
  INSERT INTO posd.lost SELECT database_id, min(seq), max(seq), 'deleted' FROM (
    SELECT database_id, seq, seq - row_number() OVER (PARTITION BY database_id ORDER BY seq) AS run FROM gone
  ) runs GROUP BY database_id, run ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone
$$;
