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
    type     TEXT    NOT NULL,                  -- 'resource', 'artifact', 'context', 'counter' or 'lock'
    trail    TEXT    NOT NULL,                  -- the trail of its scoped_to link; '' for a global one
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    deleted  INTEGER,                           -- when it went with its trail
    lease    TEXT,
    value    BLOB    NOT NULL                   -- msgpack; nil: no value set. That of a lock is in `locks`
);
CREATE UNIQUE INDEX stashes_name ON stashes (trail, name) WHERE deleted IS NULL;
CREATE INDEX stashes_created ON stashes (created, id);
CREATE INDEX stashes_trail ON stashes (trail, id);
CREATE INDEX stashes_lease ON stashes (lease) WHERE lease IS NOT NULL;
