-- A void or a refund of the whole payment returns the tips as they are counted, not as they were requested.

-- Amount of an approved tip. `came_to`: amount of its original. `tips`: sum of the tips before it.
CREATE OR REPLACE FUNCTION posd.tip_amount(requested numeric, authorized numeric, came_to numeric, tips numeric)
RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
  WHEN authorized IS NULL THEN nullif(requested, 0)
  WHEN requested <> 0 AND came_to <> 0 AND authorized IN (came_to + requested, came_to + tips + requested) THEN requested
  WHEN authorized >= 0 THEN authorized
END
$$;

-- Sum of the approved tips of an original before an operation. The answer to a tip can be a total that has the tips
-- before it.
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
    ORDER BY t.created_at, t.client_transaction_id
  LOOP
    found := found + coalesce(posd.tip_amount(tip.amount, tip.authorized_amount, came_to, found), 0);
  END LOOP;
  RETURN found;
END
$$;

CREATE OR REPLACE VIEW posd.counted AS
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
          WHEN p.authorized_amount <> 0 THEN -abs(p.authorized_amount)
          WHEN p.amount <> 0 THEN -p.amount
          ELSE -(o.came_to + o.tips)
        END
      WHEN p.type = 'post-tip' THEN posd.tip_amount(p.amount, p.authorized_amount, o.came_to, o.tips)
      WHEN p.authorized_amount IS NULL THEN nullif(p.amount, 0)
      WHEN p.authorized_amount >= 0 THEN p.authorized_amount
    END AS amount
  FROM posd.payments p
  LEFT JOIN LATERAL (
    SELECT a.type, c.came_to, posd.tips_before(a, p, c.came_to) AS tips
    FROM posd.payments a
    CROSS JOIN LATERAL (
      SELECT CASE
        WHEN a.result <> 'approved' OR a.type IN ('void', 'refund') THEN NULL
        WHEN a.authorized_amount IS NULL THEN nullif(a.amount, 0)
        WHEN a.authorized_amount >= 0 THEN a.authorized_amount
      END AS came_to
    ) c
    WHERE p.type IN ('void', 'refund', 'post-tip')
      AND a.merchant = p.merchant AND a.lane = p.lane AND a.client_transaction_id = p.original
  ) o ON true
  WHERE p.result = 'approved'
) found
WHERE amount IS NOT NULL AND kind IN ('charge', 'capture', 'post-tip', 'cancellation', 'refund', 'void');
