-- Which database this is: a restore, and a start that finds that it has gone back in time, add a new identity.
-- `first_seq` is the number from which on the feed has no gap: behind the last gap of what is there.

INSERT INTO marks (at, kind, detail)
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    'identity',
    json_object(
        'database_id', lower(hex(randomblob(16))),
        'first_seq', coalesce(
            (SELECT max(seq) FROM changes c WHERE NOT EXISTS (SELECT 1 FROM changes p WHERE p.seq = c.seq - 1)),
            (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'changes'),
            1
        ),
        'cause', 'made'
    );
