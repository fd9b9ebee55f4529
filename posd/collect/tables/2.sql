-- Closed lanes do not count as silent.

ALTER TABLE posd.lanes ADD COLUMN retired_at timestamptz;  -- since when nobody waits for it; a word of the lane ends it

CREATE OR REPLACE VIEW posd.silent AS
SELECT * FROM posd.lanes
WHERE retired_at IS NULL AND (last_state_at IS NULL OR last_state_at < now() - interval '10 minutes');
