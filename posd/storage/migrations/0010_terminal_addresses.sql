-- Last trusted address of each terminal. An address alone does not identify a terminal, so a new address needs proof
-- even after a restart. The row with the highest number counts. Rows with an operator are decisions, and are kept. A
-- terminal has only one row that posd itself has written. A row is written only if the address or its proof changes.

CREATE TABLE terminal_addresses (
    terminal     TEXT NOT NULL,
    number       INTEGER NOT NULL,
    base_url     TEXT NOT NULL,
    proof        TEXT NOT NULL,  -- pinned, ca, none: what had shown that the terminal is there
    at           TEXT NOT NULL,
    operator     TEXT,           -- of a person's decision, with the next three
    note         TEXT,
    uid          INTEGER,
    turned_down  TEXT NOT NULL DEFAULT '[]',  -- the addresses of the others that claimed to be it, as JSON
    other_serial TEXT,           -- what the device there said it is, where that is another terminal
    PRIMARY KEY (terminal, number)
) WITHOUT ROWID;

-- For data from before this migration: the address to which the newest payment of each terminal was sent.
INSERT INTO terminal_addresses (terminal, number, base_url, proof, at)
SELECT terminal, 1, sent_to, 'none', max(created_at) FROM transactions WHERE sent_to IS NOT NULL GROUP BY terminal;
