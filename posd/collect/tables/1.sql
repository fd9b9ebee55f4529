-- Tables of head office with the data of all lanes. Times are UTC. Amounts are exact, in the unit of the tills.

CREATE SCHEMA IF NOT EXISTS posd;

CREATE TABLE posd.schema_version (
  version integer NOT NULL,
  made_at timestamptz NOT NULL DEFAULT now()
);

-- Lanes, and the newest stored change of each.
CREATE TABLE posd.lanes (
  merchant text NOT NULL,
  lane text NOT NULL,
  database_id text,            -- of its newest database
  complete_to_seq bigint,      -- every change of it up to this one is here ...
  complete_to_at timestamptz,  -- ... and by the lane's clock there were no others at this time
  last_state_at timestamptz,   -- when the server took the lane's newest word on how it is
  version text,                -- of posd
  health jsonb,                -- the status, and each check that is not well
  open integer,                -- payments without an outcome, by that word
  attention jsonb,             -- how many need a person, by code, by that word
  PRIMARY KEY (merchant, lane)
);

-- Databases of each lane. `ordinal`: order of the databases of a lane.
CREATE TABLE posd.databases (
  database_id text PRIMARY KEY,
  merchant text NOT NULL,
  lane text NOT NULL,
  ordinal integer NOT NULL,
  first_seq bigint,            -- NULL until its beginning was read
  previous_id text,
  previous_last_seq bigint,
  begun_at timestamptz,
  frontier bigint,             -- every number from first_seq up to this one is here, or said to be lost
  state_seq bigint,            -- by its newest state, that is how far it goes ...
  state_as_of timestamptz,     -- ... at that time
  FOREIGN KEY (merchant, lane) REFERENCES posd.lanes
);
CREATE INDEX databases_of_lane ON posd.databases (merchant, lane);

-- Every change of every payment and print job, as in the lane's feed.
CREATE TABLE posd.changes (
  database_id text NOT NULL,
  seq bigint NOT NULL,
  merchant text NOT NULL,
  lane text NOT NULL,
  at timestamptz NOT NULL,
  kind text NOT NULL,
  id text NOT NULL,
  change jsonb NOT NULL,
  PRIMARY KEY (database_id, seq)
);
CREATE INDEX changes_of_one ON posd.changes (merchant, lane, id);

-- Lost changes: retention on the lane removed them before they were sent.
CREATE TABLE posd.lost (
  database_id text NOT NULL,
  from_seq bigint NOT NULL,
  to_seq bigint NOT NULL,
  reason text NOT NULL,
  PRIMARY KEY (database_id, from_seq, to_seq)
);

-- State of each payment from its newest change. A lost database may have reported an outcome that is missing in the
-- next database of the lane. The outcome stays here, and `in_doubt` has the state in the lane's present database.
CREATE TABLE posd.payments (
  merchant text NOT NULL,
  lane text NOT NULL,
  client_transaction_id text NOT NULL,
  database_id text NOT NULL,       -- the change that it stands here by
  seq bigint NOT NULL,
  phase text NOT NULL,
  in_doubt boolean NOT NULL,       -- it is not known whether the terminal has it
  result text,                     -- NULL: no outcome
  corrected boolean NOT NULL,      -- another outcome was told before
  type text,
  amount numeric,                  -- what was asked for
  authorized_amount numeric,       -- what the acquirer authorized
  tip numeric,
  currency text,
  sale text,                       -- the till's key of the sale
  original text,                   -- of a void, refund, capture or tip: what it is done to
  reversal text,                   -- of an approved void or refund: what became of the original
  terminal text,
  transaction_reference text,
  ticket_number text,
  created_at timestamptz NOT NULL, -- time of the till's request; before that is known, its first change
  decided_at timestamptz,
  occurred_at text,                -- by the terminal's clock, as it said it; it may be wrong
  updated_at timestamptz NOT NULL,
  attention text[] NOT NULL,
  PRIMARY KEY (merchant, lane, client_transaction_id)
);
CREATE INDEX payments_by_time ON posd.payments (created_at);
CREATE INDEX payments_in_doubt ON posd.payments (merchant, lane) WHERE in_doubt;

-- State of each print job from its newest change.
CREATE TABLE posd.print_jobs (
  merchant text NOT NULL,
  lane text NOT NULL,
  print_job_id text NOT NULL,
  database_id text NOT NULL,
  seq bigint NOT NULL,
  phase text NOT NULL,
  status text,
  terminal text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  attention text[] NOT NULL,
  PRIMARY KEY (merchant, lane, print_job_id)
);

-- Payments and print jobs that an operator should check, each with a code of `posd explain`.
CREATE TABLE posd.attention (
  merchant text NOT NULL,
  lane text NOT NULL,
  kind text NOT NULL,
  id text NOT NULL,
  code text NOT NULL,
  since timestamptz NOT NULL,      -- of the change that told it last
  PRIMARY KEY (merchant, lane, kind, id, code)
);

-- Unusable messages.
CREATE TABLE posd.unreadable (
  stream_seq bigint NOT NULL,
  received_at timestamptz NOT NULL,
  subject text NOT NULL,
  reason text NOT NULL,
  data bytea NOT NULL,             -- its beginning
  PRIMARY KEY (stream_seq, received_at)
);

-- Return the sum of all numbers of an amount, including nested numbers.
CREATE FUNCTION posd.total(amount jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT sum(part::numeric) FROM jsonb_path_query(amount, '$.**') AS part WHERE jsonb_typeof(part) = 'number'
$$;

-- Return the time at which a payment counts: the terminal's time if that can be right, else the time of the till's
-- request.
CREATE FUNCTION posd.counts_at(occurred_at text, created_at timestamptz, decided_at timestamptz)
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
EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format THEN
  RETURN created_at;
END
$$;

-- Payments in the totals, as `posd report` counts them: approved charges, captures and tips; approved voids and refunds
-- of them are negative. `kind`: type, or the kind of a void (cancellation, refund, void).
CREATE VIEW posd.counted AS
SELECT found.* FROM (
  SELECT p.merchant, p.lane, p.client_transaction_id, p.terminal, p.currency,
    posd.counts_at(p.occurred_at, p.created_at, p.decided_at) AS counts_at,
    CASE
      WHEN p.type <> 'void' THEN p.type
      WHEN o.type IS NULL THEN 'void of unknown'
      WHEN o.type IN ('pre-auth', 're-auth') THEN 'release'
      ELSE coalesce(p.reversal, 'void')
    END AS kind,
    CASE
      WHEN p.type IN ('void', 'refund') THEN
        CASE
          WHEN p.authorized_amount IS NOT NULL THEN -abs(p.authorized_amount)
          WHEN p.type = 'refund' AND p.amount <> 0 THEN -p.amount
          ELSE -o.came_to
        END
      WHEN p.authorized_amount IS NULL THEN nullif(p.amount, 0)
      WHEN p.type = 'post-tip' AND p.amount <> 0 AND o.came_to <> 0 AND p.authorized_amount = p.amount + o.came_to
        THEN p.amount
      WHEN p.authorized_amount >= 0 THEN p.authorized_amount
    END AS amount
  FROM posd.payments p
  LEFT JOIN LATERAL (
    SELECT type, CASE WHEN result = 'approved' THEN coalesce(authorized_amount, amount) END AS came_to
    FROM posd.payments
    WHERE merchant = p.merchant AND lane = p.lane AND client_transaction_id = p.original
  ) o ON true
  WHERE p.result = 'approved'
) found
WHERE amount IS NOT NULL AND kind IN ('charge', 'capture', 'post-tip', 'cancellation', 'refund', 'void');

-- Totals by day (in the session's TimeZone), lane and kind.
CREATE VIEW posd.totals AS
SELECT (counts_at AT TIME ZONE current_setting('TimeZone'))::date AS day, merchant, lane, kind,
  count(*) AS payments, sum(amount) AS total
FROM posd.counted GROUP BY 1, 2, 3, 4;

-- Highest known number of each database.
CREATE VIEW posd.known_ends AS
SELECT d.database_id, d.merchant, d.lane, d.ordinal, d.first_seq, d.frontier, greatest(
  d.state_seq,
  (SELECT max(seq) FROM posd.changes c WHERE c.database_id = d.database_id),
  (SELECT max(previous_last_seq) FROM posd.databases n
   WHERE n.previous_id = d.database_id AND n.merchant = d.merchant AND n.lane = d.lane)
) AS end_seq
FROM posd.databases d;

-- Missing numbers, which are above `after_seq` and below `before_seq`. `after_seq` is NULL if the first number of the
-- database is unknown.
CREATE VIEW posd.gaps AS
WITH behind AS (
  SELECT * FROM posd.known_ends WHERE first_seq IS NULL OR coalesce(frontier, first_seq - 1) < end_seq
), covered AS (
  SELECT c.database_id, c.seq AS from_seq, c.seq AS to_seq FROM posd.changes c JOIN behind b USING (database_id)
  WHERE c.seq > coalesce(b.frontier, 0)
  UNION ALL
  SELECT l.database_id, l.from_seq, l.to_seq FROM posd.lost l JOIN behind b USING (database_id)
  WHERE l.to_seq > coalesce(b.frontier, 0)
  UNION ALL
  SELECT database_id, end_seq + 1, end_seq + 1 FROM behind
), steps AS (
  SELECT database_id, from_seq, max(to_seq) OVER (
    PARTITION BY database_id ORDER BY from_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before FROM covered
)
SELECT b.merchant, b.lane, s.database_id, coalesce(s.before, b.frontier, b.first_seq - 1) AS after_seq,
  s.from_seq AS before_seq
FROM steps s JOIN behind b USING (database_id)
WHERE s.from_seq > coalesce(s.before, b.frontier, b.first_seq - 1) + 1 OR (b.first_seq IS NULL AND s.before IS NULL);

-- Lanes without a message for ten minutes.
CREATE VIEW posd.silent AS
SELECT * FROM posd.lanes WHERE last_state_at IS NULL OR last_state_at < now() - interval '10 minutes';

-- Payments for which another outcome was reported before.
CREATE VIEW posd.corrected AS
SELECT p.*, ARRAY(
  SELECT DISTINCT c.change ->> 'result' FROM posd.changes c
  WHERE c.merchant = p.merchant AND c.lane = p.lane AND c.id = p.client_transaction_id AND c.change ->> 'result' IS NOT NULL
) AS results
FROM posd.payments p WHERE corrected;
