-- What lists look for in the till's metadata (see posd/payments/metadata_index.py): a word is the beginning of `key=value`, a text by
-- its value, all else as it stands in the JSON. Of names with a quote or a backslash nobody can ask.

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
