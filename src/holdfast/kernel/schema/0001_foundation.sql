-- The foundation: revision counter, event log, leases, idempotency keys, locks and cells.
--
-- Schema law: every table has an explicit non-null primary key; no triggers, no autoincrement, no database clock,
-- no randomness. Times are microseconds UTC. Tables that hold large values keep their rowid and put the value last,
-- so that reading the other columns never touches the value's pages.

CREATE TABLE meta (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    workspace     TEXT    NOT NULL,             -- UUID v7, made once
    schema        INTEGER NOT NULL,             -- the newest migration applied
    oldest_writer INTEGER NOT NULL,             -- the oldest schema number that may still write here
    oldest_reader INTEGER NOT NULL,             -- and read here
    revision      INTEGER NOT NULL,             -- of the last transaction that emitted an event
    stamp         INTEGER NOT NULL,             -- of the last commit: resets of the clock x 2^53 + its time
    compacted     INTEGER NOT NULL,             -- history at or below this revision may be gone
    calm          INTEGER NOT NULL,             -- when time last leaped by more than a day that nobody witnessed
    actors        INTEGER NOT NULL,             -- a sum over the rows of that table, to find one that was lost
    parents       TEXT    NOT NULL              -- 'strict': a task waits for its children; 'independent': only for busy ones
);

CREATE TABLE local_replica (                    -- one row in the replica of a log, none elsewhere; see holdfast.logs
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL,                  -- of the last entry applied
    before   INTEGER NOT NULL,                  -- of the entry before that
    entry    TEXT    NOT NULL,                  -- the id of the last
    entries  INTEGER NOT NULL,                  -- applied since the last snapshot
    snapshot INTEGER NOT NULL                   -- the position of that
);

-- Names of records come in random order, and an index of them costs a page for each write. So the log knows a record by
-- a number. No row is ever deleted, whatever becomes of the record, so no number is used again.
CREATE TABLE records (
    key   INTEGER NOT NULL PRIMARY KEY,
    kind  TEXT    NOT NULL,
    scope TEXT    NOT NULL,                     -- the run of a cell; '' where a kind has no scope
    id    TEXT    NOT NULL
);
CREATE UNIQUE INDEX records_name ON records (kind, scope, id);

CREATE TABLE log (
    seq      INTEGER NOT NULL PRIMARY KEY,      -- in the order of revision and position; compaction leaves gaps
    revision INTEGER NOT NULL,
    position INTEGER NOT NULL,                  -- within the revision, from 0
    time     INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    record   INTEGER NOT NULL,                  -- its key
    op       TEXT    NOT NULL,
    version  INTEGER NOT NULL,                  -- the record's version after this event
    redacted INTEGER NOT NULL DEFAULT 0,        -- 1: the record was purged, data is gone
    data     BLOB                               -- msgpack map
);
CREATE UNIQUE INDEX log_revision ON log (revision, position);
CREATE INDEX log_record ON log (record, version);

CREATE VIEW events AS
    SELECT revision, position, time, actor, kind, scope, id, op, version, redacted, data
    FROM log JOIN records ON key = record;

CREATE TABLE leases (
    id       ANY     NOT NULL PRIMARY KEY,      -- of a claim the key of the task's record; of others a UUID v7 or a name
    kind     TEXT    NOT NULL,                  -- 'lease': made by a user; otherwise the kind of the one thing on it
    holder   TEXT    NOT NULL,
    ttl      INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    created  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX leases_due ON leases (deadline);
CREATE INDEX leases_made ON leases (id) WHERE kind = 'lease';

CREATE TABLE actors (                           -- who has written here, if somebody chose the name, and when last
    name TEXT    NOT NULL PRIMARY KEY,
    seen INTEGER NOT NULL
);

CREATE TABLE idempotency (
    actor     TEXT    NOT NULL,
    operation TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    digest    BLOB    NOT NULL,                 -- of the arguments
    expires   INTEGER NOT NULL,
    answer    BLOB    NOT NULL,
    PRIMARY KEY (actor, operation, key)
);
CREATE INDEX idempotency_expires ON idempotency (expires);

CREATE TABLE locks (
    kind     TEXT    NOT NULL,                  -- 'lock' for plain names, 'cell-lock' for cells, ...
    scope    TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    holder   TEXT    NOT NULL,
    token    INTEGER NOT NULL,
    acquired INTEGER NOT NULL,
    lease    ANY,                               -- its id; null: held until released
    task     TEXT,                              -- it ends when the claim on this task does
    detail   BLOB,                              -- msgpack, what a kind of lock needs besides
    PRIMARY KEY (kind, scope, name)
);
CREATE INDEX locks_lease ON locks (lease) WHERE lease IS NOT NULL;
CREATE INDEX locks_task ON locks (task) WHERE task IS NOT NULL;

CREATE TABLE waiters (
    kind   TEXT    NOT NULL,
    scope  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    place  INTEGER NOT NULL,                    -- in line: made like a token, so it grows with every arrival
    ticket TEXT    NOT NULL,                    -- the id of its lease
    holder TEXT    NOT NULL,
    detail BLOB,                                -- as in locks
    PRIMARY KEY (kind, scope, name, place)
);
CREATE UNIQUE INDEX waiters_ticket ON waiters (ticket);

CREATE TABLE cells (
    run      TEXT    NOT NULL,
    cell     TEXT    NOT NULL,
    record   INTEGER NOT NULL,                  -- its key in the log
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    lease    TEXT,                              -- null: lives until deleted
    value    BLOB    NOT NULL,
    PRIMARY KEY (run, cell)
);
CREATE INDEX cells_lease ON cells (lease) WHERE lease IS NOT NULL;
