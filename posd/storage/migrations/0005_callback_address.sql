-- The address of this machine in the callback URL, and whether this machine has lost it. Without that address, events
-- of the transaction cannot arrive, and posd searches for it. The address is NULL if it is configured, and for
-- transactions from before this migration.

ALTER TABLE transactions ADD COLUMN callback_host TEXT;
ALTER TABLE transactions ADD COLUMN callback_lost INTEGER NOT NULL DEFAULT 0;
