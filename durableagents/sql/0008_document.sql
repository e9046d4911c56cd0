-- Documents to search in, by edition: rows are added, never changed. A name is words too: `django.db.transaction` is found by "transaction".
CREATE TABLE durableagents_document (
    edition text NOT NULL,
    id text NOT NULL,
    source text NOT NULL,
    body text NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    words tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english'::regconfig, translate(id, '._', '  ')), 'A') || to_tsvector('english'::regconfig, body)
    ) STORED,
    PRIMARY KEY (edition, id)
);
CREATE INDEX durableagents_document_words ON durableagents_document USING gin (words);
