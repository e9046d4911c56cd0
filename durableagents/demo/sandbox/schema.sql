-- The sandbox's whole memory. Ids people see (VND-000001) are made of seq; AUTOINCREMENT never hands out a number twice.

-- The oracle: one row per request received, written before anything else happens to it.
CREATE TABLE IF NOT EXISTS requests (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    system          TEXT NOT NULL,
    operation       TEXT NOT NULL,
    idempotency_key TEXT,
    body_sha256     TEXT,                       -- null: the body was too large to read
    run_id          TEXT,
    received_at     TEXT NOT NULL,
    executed        INTEGER NOT NULL DEFAULT 0 CHECK (executed IN (0, 1)),
    sender          INTEGER,                    -- the process that sent it, and when, where it says so
    sent_at         TEXT
);
CREATE INDEX IF NOT EXISTS requests_of_a_run ON requests (run_id, id);

-- What a key did, and the exact answer it gets forever.
CREATE TABLE IF NOT EXISTS keys (
    system      TEXT NOT NULL,
    operation   TEXT NOT NULL,
    key         TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    status      INTEGER NOT NULL,
    answer      TEXT NOT NULL,
    request_id  INTEGER NOT NULL UNIQUE REFERENCES requests (id),
    PRIMARY KEY (system, operation, key)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS vendors (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    legal_name    TEXT NOT NULL,
    country       TEXT NOT NULL,
    tax_id        TEXT NOT NULL,
    contact_email TEXT NOT NULL,
    category      TEXT NOT NULL,
    run_id        TEXT,
    created_at    TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS purchase_orders (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    vendor_seq  INTEGER NOT NULL REFERENCES vendors (seq),
    description TEXT NOT NULL,
    amount_usd  TEXT NOT NULL,
    run_id      TEXT,
    created_at  TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS credentials (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    vendor_seq INTEGER NOT NULL REFERENCES vendors (seq),
    scope      TEXT NOT NULL,
    secret     TEXT NOT NULL,
    run_id     TEXT,
    created_at TEXT NOT NULL
);

-- A W-9 is open until its callback was answered for good. `notice` is the callback's body, fixed when the form is signed, so that every
-- attempt, also after a restart, sends the same bytes. Times the courier computes with are Unix seconds.
CREATE TABLE IF NOT EXISTS w9_requests (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    legal_name      TEXT NOT NULL,
    tax_id          TEXT NOT NULL,
    contact_email   TEXT NOT NULL,
    callback_url    TEXT NOT NULL,
    run_id          TEXT,
    created_at      TEXT NOT NULL,
    requested_at    REAL NOT NULL,
    is_released     INTEGER NOT NULL DEFAULT 0,
    notice          TEXT,
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at REAL NOT NULL DEFAULT 0,
    last_result     TEXT,
    closed_at       TEXT
);
CREATE INDEX IF NOT EXISTS w9_open ON w9_requests (seq) WHERE closed_at IS NULL;

CREATE TABLE IF NOT EXISTS messages (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    mail_from   TEXT NOT NULL,
    recipients  TEXT NOT NULL,
    subject     TEXT NOT NULL,
    run_id      TEXT,
    received_at TEXT NOT NULL,
    raw         BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_of_a_run ON messages (run_id, seq);

CREATE TABLE IF NOT EXISTS refunds (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    order_number TEXT NOT NULL,
    amount_usd   TEXT NOT NULL,
    note         TEXT NOT NULL,
    run_id       TEXT,
    created_at   TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS refunds_of_an_order ON refunds (order_number);

CREATE TABLE IF NOT EXISTS embeddings (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    run_id      TEXT,
    created_at  TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS reports (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    title      TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    text       TEXT NOT NULL,
    run_id     TEXT,
    created_at TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS faults (
    system                  TEXT NOT NULL,
    operation               TEXT NOT NULL,
    latency_ms              REAL NOT NULL,
    error_rate              REAL NOT NULL,
    drop_after_execute_rate REAL NOT NULL,
    w9_delay_seconds        REAL,
    refuse_rate             REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (system, operation)
) WITHOUT ROWID;
