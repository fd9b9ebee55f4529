-- What one unit of an amount in the terminal's answers was when a payment was sent: it can be configured, and what was
-- read under one setting must not be read again under another. NULL: not known, as of what was taken over by its id.

ALTER TABLE transactions ADD COLUMN answer_unit TEXT DEFAULT 'main';
