-- Words of the metadata as posd/base/canonical_json.py makes them, in place of those of 0007; and an index of results that
-- are rare: an approval is not in it, and writes nothing more.

DELETE FROM transaction_words;
INSERT INTO transaction_words (word, at, id)
SELECT w.value, t.created_at, t.client_transaction_id
  FROM transactions t, json_each(index_words(CAST(t.metadata AS BLOB))) w
 WHERE t.metadata <> '{}'
 ORDER BY 1, 2, 3;

-- How what is final ended, but for approvals.
ALTER TABLE transactions ADD COLUMN unapproved TEXT;
UPDATE transactions SET unapproved = outcome ->> 'result' WHERE json_valid(outcome) AND outcome ->> 'result' <> 'approved';
CREATE INDEX transactions_unapproved ON transactions (unapproved, created_at, client_transaction_id)
 WHERE unapproved IS NOT NULL;
