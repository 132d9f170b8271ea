-- Agents that have registered, mail, and the index of path locks, which are rows of `locks`.
-- oldest writer: 3

CREATE TABLE agents (
    name       TEXT    NOT NULL PRIMARY KEY,
    program    TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    role       TEXT    NOT NULL,                -- 'agent', 'person', 'maintainer' or 'observer'
    can        TEXT    NOT NULL,                -- JSON list, sorted
    registered INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    revision   INTEGER NOT NULL
);

CREATE TABLE messages (
    seq      INTEGER NOT NULL PRIMARY KEY,      -- in the order they were sent
    id       TEXT    NOT NULL UNIQUE,           -- UUID v7
    thread   TEXT    NOT NULL,                  -- the id of its first message, or a name
    task     TEXT,                              -- the id of a task
    sender   TEXT    NOT NULL,
    type     TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    ack      INTEGER NOT NULL,                  -- 1: the sender wants it acknowledged
    answers  TEXT,                              -- the id of the message that it replies to
    sent     INTEGER NOT NULL,
    closed   INTEGER,                           -- when, if it is
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    receiver TEXT    NOT NULL                   -- JSON list, as it was addressed
);
CREATE INDEX messages_thread ON messages (thread, seq);
CREATE INDEX messages_task ON messages (task, seq) WHERE task IS NOT NULL;
CREATE INDEX messages_sender ON messages (sender, seq);

CREATE TABLE deliveries (                       -- a message to each who received it
    message INTEGER NOT NULL,                   -- the seq of the message
    agent   TEXT    NOT NULL,
    status  TEXT    NOT NULL,                   -- 'unread', 'acknowledged', 'actioned', 'blocked' or 'closed'
    updated INTEGER NOT NULL,
    PRIMARY KEY (message, agent)
) WITHOUT ROWID;
CREATE INDEX deliveries_all ON deliveries (agent, message);
CREATE INDEX deliveries_open ON deliveries (agent, message) WHERE status <> 'closed';
CREATE INDEX deliveries_unread ON deliveries (agent, message) WHERE status = 'unread';

CREATE TABLE mailboxes (                        -- of everybody who ever received a message
    agent  TEXT    NOT NULL PRIMARY KEY,
    unread INTEGER NOT NULL                     -- how many of its deliveries are
);

CREATE TABLE message_texts (
    seq     INTEGER NOT NULL PRIMARY KEY,
    subject TEXT    NOT NULL,
    body    TEXT    NOT NULL
);
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    subject, body, content = 'message_texts', content_rowid = 'seq', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO messages_fts (messages_fts, rank) VALUES ('secure-delete', 1);

CREATE TABLE path_prefixes (                    -- by which those path locks are found that a path or pattern may meet
    prefix TEXT NOT NULL,                       -- the leading segments of a pattern without wildcards, each with its /
    lock   TEXT NOT NULL,                       -- the id of the lock
    PRIMARY KEY (prefix, lock)
) WITHOUT ROWID;
CREATE INDEX path_prefixes_lock ON path_prefixes (lock);
