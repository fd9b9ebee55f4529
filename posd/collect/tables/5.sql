-- The day of a payment is the same as in `posd report`, which parses every ISO 8601 time of a terminal, even a time
-- with a space, without seconds, or without an offset (UTC).

CREATE OR REPLACE FUNCTION posd.counts_at(occurred_at text, created_at timestamptz, decided_at timestamptz)
RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  part text[] := regexp_match(occurred_at, '^(\d{4}-?\d\d-?\d\d)[T ]([01]\d|2[0-3])'
    || ':?([0-5]\d)(?::?([0-5]\d)(?:[.,](\d{1,6})\d*)?)?(Z|[+-]\d\d(?::?\d\d)?)?$');
  said timestamptz;
BEGIN
  IF part IS NULL OR decided_at IS NULL THEN
    RETURN created_at;
  END IF;
  said := format('%s %s:%s:%s.%s%s', part[1], part[2], part[3], coalesce(part[4], '00'), coalesce(part[5], '0'),
    coalesce(part[6], 'Z'))::timestamptz;
  IF said >= created_at - interval '1 hour' AND said <= least(decided_at + interval '1 hour', created_at + interval '2 days') THEN
    RETURN said;
  END IF;
  RETURN created_at;
EXCEPTION WHEN data_exception THEN  -- all of class 22
  RETURN created_at;
END
$$;

-- A lane whose clock was ahead is complete at most up to the present.

UPDATE posd.lanes SET complete_to_at = least(complete_to_at, last_state_at);
UPDATE posd.databases SET state_as_of = now() WHERE state_as_of > now();

-- A lane whose clock is behind reports starts at times long past.

ALTER TABLE posd.payments ADD COLUMN received_at timestamptz;  -- when the server stored the last message about it
