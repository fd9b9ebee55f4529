-- Words of the metadata, as posd/base/canonical_json.py creates them. They replace the words of 0007. Also an index of
-- rare results, which has no entry for an approval.

DELETE FROM transaction_words;
INSERT INTO transaction_words (word, at, id)
SELECT w.value, t.created_at, t.client_transaction_id
  FROM transactions t, json_each(index_words(CAST(t.metadata AS BLOB))) w
 WHERE t.metadata <> '{}'
 ORDER BY 1, 2, 3;

-- Result of a final transaction, except approvals.
ALTER TABLE transactions ADD COLUMN unapproved TEXT;
UPDATE transactions SET unapproved = outcome ->> 'result' WHERE json_valid(outcome) AND outcome ->> 'result' <> 'approved';
CREATE INDEX transactions_unapproved ON transactions (unapproved, created_at, client_transaction_id)
 WHERE unapproved IS NOT NULL;
