-- Unit of the amounts in the terminal's replies when a payment was sent. The unit is configurable, and data that was
-- read with one setting must not be read again with another. NULL: unknown, for example for a record that was taken
-- over by its id.

ALTER TABLE transactions ADD COLUMN answer_unit TEXT DEFAULT 'main';
