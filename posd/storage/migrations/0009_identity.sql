-- Identities of the database. A restore adds a new identity, and so does a start that finds that the database has gone
-- back in time. `first_seq`: number from which on the feed has no gap.

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
