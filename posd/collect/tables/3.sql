-- Payments in the totals, by the rule of posd/payments/counting.py. The vectors in tests/vectors/counting.json test
-- both. Amounts of different currencies are not added.

CREATE INDEX payments_by_original ON posd.payments (merchant, lane, original) WHERE original IS NOT NULL;

-- `kind`: type, or the kind of a void (cancellation, refund, void). Returned amounts are negative.
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
      WHEN p.authorized_amount IS NULL THEN nullif(p.amount, 0)
      WHEN p.type = 'post-tip' AND p.amount <> 0 AND o.came_to <> 0
        AND p.authorized_amount IN (o.came_to + p.amount, o.came_to + o.tips + p.amount) THEN p.amount
      WHEN p.authorized_amount >= 0 THEN p.authorized_amount
    END AS amount
  FROM posd.payments p
  LEFT JOIN LATERAL (
    SELECT a.type,
      CASE
        WHEN a.result <> 'approved' OR a.type IN ('void', 'refund') THEN NULL
        WHEN a.authorized_amount IS NULL THEN nullif(a.amount, 0)
        WHEN a.authorized_amount >= 0 THEN a.authorized_amount
      END AS came_to,
      (SELECT coalesce(sum(t.amount), 0) FROM posd.payments t
       WHERE t.merchant = a.merchant AND t.lane = a.lane AND t.original = a.client_transaction_id
         AND t.type = 'post-tip' AND t.result = 'approved'
         AND (t.created_at, t.client_transaction_id) < (p.created_at, p.client_transaction_id)) AS tips
    FROM posd.payments a
    WHERE p.type IN ('void', 'refund', 'post-tip')
      AND a.merchant = p.merchant AND a.lane = p.lane AND a.client_transaction_id = p.original
  ) o ON true
  WHERE p.result = 'approved'
) found
WHERE amount IS NOT NULL AND kind IN ('charge', 'capture', 'post-tip', 'cancellation', 'refund', 'void');

-- Totals by day (in the session's TimeZone), lane, kind and currency.
CREATE OR REPLACE VIEW posd.totals AS
SELECT (counts_at AT TIME ZONE current_setting('TimeZone'))::date AS day, merchant, lane, kind,
  count(*) AS payments, sum(amount) AS total, currency
FROM posd.counted GROUP BY 1, 2, 3, 4, currency;
