-- Trails, and stashes, which belong to a trail or to all. Links between them are rows of `links`; the lock of a stash is
-- a row of `locks`, named like the stash.
-- oldest writer: 4

CREATE TABLE trails (
    id       TEXT    NOT NULL PRIMARY KEY,      -- UUID v7
    name     TEXT    NOT NULL,
    state    TEXT    NOT NULL,                  -- 'draft', 'pending', 'active', 'completed' or 'abandoned'
    before   TEXT    NOT NULL,                  -- the state that it was abandoned in; '' otherwise
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    ended    INTEGER                            -- when it was completed or abandoned
);
CREATE INDEX trails_state ON trails (state, id);

CREATE TABLE stashes (
    id       TEXT    NOT NULL PRIMARY KEY,      -- UUID v7
    name     TEXT    NOT NULL,
    type     TEXT    NOT NULL,                  -- 'resource', 'artifact', 'context', 'counter', 'lock', 'queue' or 'channel'
    trail    TEXT    NOT NULL,                  -- the trail of its scoped_to link; '' for a global one
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    deleted  INTEGER,                           -- when it went with its trail
    lease    TEXT,
    value    BLOB    NOT NULL                   -- msgpack; nil: no value set. That of a lock is in `locks`,
                                                -- of a queue and a channel it has the settings
);
CREATE UNIQUE INDEX stashes_name ON stashes (trail, name) WHERE deleted IS NULL;
CREATE INDEX stashes_created ON stashes (created, id);
CREATE INDEX stashes_trail ON stashes (trail, id);
CREATE INDEX stashes_lease ON stashes (lease) WHERE lease IS NOT NULL;

-- What a queue holds, and how many items are in each state: whoever changes an item changes the counts, and logs both.
CREATE TABLE queues (
    record   INTEGER NOT NULL PRIMARY KEY,      -- its key in the log, of the kind 'queue'
    stash    TEXT    NOT NULL,
    version  INTEGER NOT NULL,                  -- of the queue's own events, not of the stash
    revision INTEGER NOT NULL,
    last     INTEGER NOT NULL,                  -- the number of the newest item; no number is used again
    ready    INTEGER NOT NULL,
    delayed  INTEGER NOT NULL,
    taken    INTEGER NOT NULL,
    dead     INTEGER NOT NULL
);
CREATE UNIQUE INDEX queues_stash ON queues (stash);

CREATE TABLE queue_items (
    queue      INTEGER NOT NULL,                -- its record
    number     INTEGER NOT NULL,                -- the place of the item, which it keeps until it is acknowledged
    state      TEXT    NOT NULL,                -- 'ready', 'delayed', 'taken' or 'dead'
    deliveries INTEGER NOT NULL,                -- how often it was taken
    created    INTEGER NOT NULL,
    token      INTEGER,                         -- of the delivery, while it is taken; its lease is 'queue:QUEUE:NUMBER'
    key        TEXT,                            -- another item with it is not put while this one is here
    value      BLOB    NOT NULL,                -- msgpack
    PRIMARY KEY (queue, number)
);
CREATE INDEX queue_items_state ON queue_items (queue, state, number);
CREATE UNIQUE INDEX queue_items_token ON queue_items (token) WHERE token IS NOT NULL;
CREATE UNIQUE INDEX queue_items_key ON queue_items (queue, key) WHERE key IS NOT NULL;

-- A channel has exactly its messages `first` to `last`. A cursor is the number of the last message that a subscriber has
-- acknowledged; it may lie below `first`, if messages were not kept long enough for it.
CREATE TABLE channels (
    record   INTEGER NOT NULL PRIMARY KEY,      -- its key in the log, of the kind 'channel'
    stash    TEXT    NOT NULL,
    version  INTEGER NOT NULL,                  -- of the channel's own events, not of the stash
    revision INTEGER NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL
);
CREATE UNIQUE INDEX channels_stash ON channels (stash);

CREATE TABLE channel_messages (
    channel INTEGER NOT NULL,                   -- its record
    number  INTEGER NOT NULL,
    created INTEGER NOT NULL,
    sender  TEXT    NOT NULL,
    value   BLOB    NOT NULL,                   -- msgpack
    PRIMARY KEY (channel, number)
);

CREATE TABLE channel_cursors (
    channel    INTEGER NOT NULL,
    subscriber TEXT    NOT NULL,
    cursor     INTEGER NOT NULL,
    PRIMARY KEY (channel, subscriber)
);
