-- Threads of graphs: their checkpoints, the values of their channels, and what tasks wrote; and items that outlive them.
-- Events have ids and sizes of all this, and never a value.
-- oldest writer: 6

CREATE TABLE threads (
    record      INTEGER NOT NULL PRIMARY KEY,   -- its key in the log, of the kind 'thread'
    id          TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    checkpoints INTEGER NOT NULL,               -- how many it has
    before      INTEGER NOT NULL                -- when an earlier thread with this id was deleted, 0: there was none
);
CREATE UNIQUE INDEX threads_id ON threads (id);

CREATE TABLE checkpoints (
    thread   INTEGER NOT NULL,                  -- its record
    ns       TEXT    NOT NULL,                  -- '' for the graph itself, else the path of a subgraph
    id       TEXT    NOT NULL,                  -- later ones are greater
    parent   TEXT,                              -- the id of the one before, which may be gone
    run      TEXT,
    created  INTEGER NOT NULL,
    channels TEXT    NOT NULL,                  -- JSON: channel -> the version of its value, of those that have one
    deltas   TEXT    NOT NULL,                  -- JSON list: channels whose value the writes of ancestors add up to
    metadata BLOB    NOT NULL,                  -- msgpack
    value    BLOB    NOT NULL,                  -- msgpack
    PRIMARY KEY (thread, ns, id)
);
CREATE INDEX checkpoints_newest ON checkpoints (id, thread, ns);
CREATE INDEX checkpoints_run ON checkpoints (run) WHERE run IS NOT NULL;

CREATE TABLE channel_values (                   -- each once, however many checkpoints have it
    thread  INTEGER NOT NULL,
    ns      TEXT    NOT NULL,
    channel TEXT    NOT NULL,
    version TEXT    NOT NULL,
    value   BLOB    NOT NULL,                   -- msgpack
    PRIMARY KEY (thread, ns, channel, version)
);

CREATE TABLE checkpoint_writes (                -- of the tasks that follow a checkpoint; they may come before it
    thread     INTEGER NOT NULL,
    ns         TEXT    NOT NULL,
    checkpoint TEXT    NOT NULL,
    task       TEXT    NOT NULL,
    number     INTEGER NOT NULL,                -- its place among those of the task; below 0: a task has one of its kind
    path       TEXT    NOT NULL,                -- of the task, by which writes are ordered
    channel    TEXT    NOT NULL,
    value      BLOB    NOT NULL,                -- msgpack
    PRIMARY KEY (thread, ns, checkpoint, task, number)
);

CREATE TABLE items (
    record    INTEGER NOT NULL PRIMARY KEY,     -- its key in the log, of the kind 'item'
    namespace TEXT    NOT NULL,                 -- labels with / between
    key       TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    updated   INTEGER NOT NULL,
    lease     TEXT,                             -- 'item:RECORD', if it expires
    value     BLOB    NOT NULL                  -- msgpack
);
CREATE UNIQUE INDEX items_key ON items (namespace, key);
