-- What an operation derives from: the original by its id where this database knows it, however the till named it, and
-- of a void the moment at which the day of its original ends for the merchant.

ALTER TABLE transactions ADD COLUMN derives_from TEXT;
ALTER TABLE transactions ADD COLUMN same_day_until TEXT;

CREATE INDEX transactions_derived ON transactions (derives_from) WHERE derives_from IS NOT NULL;
CREATE INDEX transactions_sent_reference ON transactions (upper(transaction_reference))
 WHERE transaction_reference IS NOT NULL;

-- The reference that its approval gave, in upper case, so that it is no id where a damaged file is read page by page.
ALTER TABLE transactions ADD COLUMN given_reference TEXT;
UPDATE transactions SET given_reference = upper(json_extract(outcome, '$.transaction_reference'))
 WHERE outcome IS NOT NULL;
CREATE INDEX transactions_given_reference ON transactions (given_reference) WHERE given_reference IS NOT NULL;
