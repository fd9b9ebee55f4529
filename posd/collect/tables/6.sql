-- A void or a refund of the whole payment returns the tips as they are counted, not as they were requested. A payment of
-- unknown type or amount is reported.

-- A lane with thousands of tips of one payment does not hold up the totals of all lanes.

DROP INDEX posd.payments_by_original;
CREATE INDEX payments_tips ON posd.payments (merchant, lane, original, created_at, client_transaction_id)
WHERE type = 'post-tip' AND result = 'approved';

-- Amount of an approved tip. `came_to`: amount of its original. `tips`: sum of the tips before it.
CREATE OR REPLACE FUNCTION posd.tip_amount(requested numeric, authorized numeric, came_to numeric, tips numeric)
RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
  WHEN authorized IS NULL THEN nullif(requested, 0)
  WHEN requested <> 0 AND came_to <> 0 AND authorized IN (came_to + requested, came_to + tips + requested) THEN requested
  WHEN authorized >= 0 THEN authorized
END
$$;

-- Sum of the first 100 approved tips of an original before an operation. A till sends one tip, or more by `repeat`. The
-- answer to a tip can be a total that has the tips before it.
CREATE OR REPLACE FUNCTION posd.tips_before(original posd.payments, operation posd.payments, came_to numeric)
RETURNS numeric LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  tip record;
  found numeric := 0;
BEGIN
  FOR tip IN
    SELECT t.amount, t.authorized_amount FROM posd.payments t
    WHERE t.merchant = original.merchant AND t.lane = original.lane
      AND t.original = tips_before.original.client_transaction_id
      AND t.type = 'post-tip' AND t.result = 'approved'
      AND (t.created_at, t.client_transaction_id) < (operation.created_at, operation.client_transaction_id)
    ORDER BY t.created_at, t.client_transaction_id LIMIT 100
  LOOP
    found := found + coalesce(posd.tip_amount(tip.amount, tip.authorized_amount, came_to, found), 0);
  END LOOP;
  RETURN found;
END
$$;

-- The effect of each operation type. `posd collect --init` writes the rows of `posd.base.operations`.

CREATE TABLE posd.operations (
  type text PRIMARY KEY,
  reserves boolean NOT NULL,    -- it changes a reservation, and moves no money
  reverses boolean NOT NULL,    -- it returns or releases money
  by_original boolean NOT NULL  -- its effect depends on the original
);

-- Effect of every approved payment, by the rule of posd/payments/counting.py. The vectors in
-- tests/vectors/counting.json test both. `section`: counted; reserved; or unclear, if type or amount is unknown.
CREATE VIEW posd.effects AS
SELECT found.*, CASE
  WHEN found.amount IS NULL OR moved.reserves IS NULL THEN 'unclear'
  WHEN moved.reserves THEN 'reserved'
  ELSE 'counted'
END AS section
FROM (
  SELECT p.merchant, p.lane, p.client_transaction_id, p.terminal, p.currency,
    posd.counts_at(p.occurred_at, p.created_at, p.decided_at) AS counts_at,
    CASE
      WHEN p.type IS NULL THEN 'unknown'
      WHEN p.type <> 'void' THEN p.type
      WHEN o.reserves IS NULL THEN 'void of unknown'
      WHEN o.reserves THEN 'release'
      ELSE coalesce(p.reversal, 'void')
    END AS kind,
    CASE
      WHEN own.reverses THEN
        CASE
          WHEN p.authorized_amount <> 0 THEN -abs(p.authorized_amount)
          WHEN p.amount <> 0 THEN -p.amount
          ELSE -(o.came_to + o.tips)
        END
      WHEN p.type = 'post-tip' THEN posd.tip_amount(p.amount, p.authorized_amount, o.came_to, o.tips)
      WHEN p.authorized_amount IS NULL THEN nullif(p.amount, 0)
      WHEN p.authorized_amount >= 0 THEN p.authorized_amount
    END AS amount,
    CASE WHEN p.type = 'void' THEN o.type ELSE p.type END AS moves
  FROM posd.payments p
  LEFT JOIN posd.operations own ON own.type = p.type
  LEFT JOIN LATERAL (
    SELECT a.type, named.reserves, c.came_to, posd.tips_before(a, p, c.came_to) AS tips
    FROM posd.payments a
    LEFT JOIN posd.operations named ON named.type = a.type
    CROSS JOIN LATERAL (
      SELECT CASE
        WHEN a.result <> 'approved' OR named.reverses THEN NULL
        WHEN a.authorized_amount IS NULL THEN nullif(a.amount, 0)
        WHEN a.authorized_amount >= 0 THEN a.authorized_amount
      END AS came_to
    ) c
    WHERE own.by_original
      AND a.merchant = p.merchant AND a.lane = p.lane AND a.client_transaction_id = p.original
  ) o ON true
  WHERE p.result = 'approved'
) found
LEFT JOIN posd.operations moved ON moved.type = found.moves;

CREATE OR REPLACE VIEW posd.counted AS
SELECT merchant, lane, client_transaction_id, terminal, currency, counts_at, kind, amount
FROM posd.effects WHERE section = 'counted';
