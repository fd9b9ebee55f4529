-- Words of the till's metadata by which lists find transactions. A word is the beginning of `key=value`, where a text
-- is its value, and any other value is its JSON. Names with a quote or a backslash cannot be searched.

CREATE TABLE transaction_words (
    word TEXT NOT NULL,
    at   TEXT NOT NULL,  -- created_at of the transaction
    id   TEXT NOT NULL,
    PRIMARY KEY (word, at, id)
) WITHOUT ROWID;

INSERT OR IGNORE INTO transaction_words
SELECT substr(e.key || '=' || CASE e.type WHEN 'text' THEN e.atom ELSE t.metadata -> e.fullkey END, 1, 100),
       t.created_at, t.client_transaction_id
  FROM transactions t, json_each(CASE WHEN json_valid(t.metadata) THEN t.metadata ELSE '{}' END) e
 WHERE t.metadata <> '{}' AND instr(e.key, '"') = 0 AND instr(e.key, '\') = 0
 ORDER BY 1, 2, 3;
