-- A lane with thousands of tips of one payment does not hold up the totals of all lanes.

DROP INDEX posd.payments_by_original;
CREATE INDEX payments_tips ON posd.payments (merchant, lane, original, created_at, client_transaction_id)
WHERE type = 'post-tip' AND result = 'approved';

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
