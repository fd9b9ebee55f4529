-- Original of an operation by id, if this database has it, whether the till named it by id or by reference. For a void,
-- also the end of the original's day in the merchant's time zone.

ALTER TABLE transactions ADD COLUMN derives_from TEXT;
ALTER TABLE transactions ADD COLUMN same_day_until TEXT;

CREATE INDEX transactions_derived ON transactions (derives_from) WHERE derives_from IS NOT NULL;
CREATE INDEX transactions_sent_reference ON transactions (upper(transaction_reference))
 WHERE transaction_reference IS NOT NULL;

-- The reference of the approval, in upper case, so that it is not taken for an id when a damaged file is read page by
-- page.
ALTER TABLE transactions ADD COLUMN given_reference TEXT;
UPDATE transactions SET given_reference = upper(json_extract(outcome, '$.transaction_reference'))
 WHERE outcome IS NOT NULL;
CREATE INDEX transactions_given_reference ON transactions (given_reference) WHERE given_reference IS NOT NULL;
