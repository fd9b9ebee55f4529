-- The address of this machine in the callback URL (NULL where the configuration names it, and of what was started before
-- this), and whether this machine has lost it: then the events of the transaction cannot come, and it is asked for.

ALTER TABLE transactions ADD COLUMN callback_host TEXT;
ALTER TABLE transactions ADD COLUMN callback_lost INTEGER NOT NULL DEFAULT 0;
