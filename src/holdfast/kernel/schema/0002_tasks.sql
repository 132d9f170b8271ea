-- Tasks with their texts, tags and links; documents (configuration, routing rules); templates; what was imported, and
-- what is shared.
--
-- What readiness depends on is kept on the task and changed in the same transaction: `waits` counts its unfinished
-- dependencies, and 1 more while a lease defers it; `busy` counts the children it waits for: by `parents` of meta, all that are
-- unfinished, or those in progress or pending merge. A claim is a lease whose id is `record`.
-- oldest writer: 2

CREATE TABLE tasks (
    seq      INTEGER NOT NULL PRIMARY KEY,      -- in the order of creation
    record   INTEGER NOT NULL,                  -- its key in the log
    id       TEXT    NOT NULL UNIQUE,
    status   TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    waits    INTEGER NOT NULL,
    busy     INTEGER NOT NULL,
    children INTEGER NOT NULL,                  -- how many it has, without deleted ones
    ended    INTEGER NOT NULL,                  -- how many of those are closed
    type     TEXT    NOT NULL,
    parent   INTEGER,                           -- the seq of another task
    depth    INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    deleted  INTEGER,                           -- when, if it is
    deletion INTEGER,                           -- the seq of the task whose deletion took it along
    holder   TEXT,                              -- of the claim, with the four that follow
    claimed  INTEGER,
    token    INTEGER,
    ttl      INTEGER,
    parked   INTEGER NOT NULL,                  -- 1: held until its holder goes on, or until a chosen time
    hint     TEXT,
    grimoire TEXT,                              -- assigned at the last claim
    review   INTEGER NOT NULL,                  -- 1: that route wants a review before closing
    tags     TEXT    NOT NULL,                  -- JSON list, sorted
    title    TEXT    NOT NULL,
    assignee TEXT,                              -- the agent that alone may claim it
    refs     TEXT,                              -- JSON list of [kind, value]: branches, commits, pull requests, addresses
    imported INTEGER,                           -- when, last; retention counts from then
    origin   TEXT                               -- JSON: who imported it, and what the file says of its past
);
CREATE INDEX tasks_ready ON tasks (priority, seq)
    WHERE status = 'open' AND waits = 0 AND busy = 0 AND deleted IS NULL AND assignee IS NULL;
CREATE INDEX tasks_ready_assigned ON tasks (assignee, priority, seq)
    WHERE status = 'open' AND waits = 0 AND busy = 0 AND deleted IS NULL AND assignee IS NOT NULL;
CREATE INDEX tasks_ready_reserved ON tasks (priority, seq)
    WHERE status = 'open' AND waits = 0 AND busy = 0 AND deleted IS NULL AND assignee IS NOT NULL;
CREATE INDEX tasks_assigned ON tasks (assignee, priority, seq) WHERE assignee IS NOT NULL;
CREATE INDEX tasks_priority ON tasks (priority, seq);
CREATE INDEX tasks_status ON tasks (status, priority, seq) WHERE holder IS NULL;
CREATE INDEX tasks_updated ON tasks (updated, seq);
CREATE INDEX tasks_closed ON tasks (updated, seq) WHERE status = 'closed' AND deleted IS NULL;
CREATE INDEX tasks_deleted ON tasks (deleted, seq) WHERE deleted IS NOT NULL;
CREATE INDEX tasks_parent ON tasks (parent, priority, seq) WHERE parent IS NOT NULL;
-- By holder last: tasks are claimed in this order, so the claims of a group share its pages. Whoever asks for those of
-- one holder scans it, which is short: one entry for each task in progress.
CREATE INDEX tasks_held ON tasks (priority, seq, holder) WHERE holder IS NOT NULL;

CREATE TABLE task_texts (                       -- what a search looks through; apart, so that a claim rewrites no text
    seq   INTEGER NOT NULL PRIMARY KEY,
    title TEXT    NOT NULL,
    body  TEXT    NOT NULL,
    notes TEXT    NOT NULL,
    refs  TEXT    NOT NULL
);
CREATE VIRTUAL TABLE tasks_fts USING fts5 (
    title, body, notes, refs, content = 'task_texts', content_rowid = 'seq', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO tasks_fts (tasks_fts, rank) VALUES ('secure-delete', 1);  -- what is purged is not found in the file either

CREATE TABLE task_tags (
    tag      TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (tag, priority, seq)
) WITHOUT ROWID;

-- What a claim by tag looks at: the rows of all ready tasks, and of some that are ready no more. A claim would rewrite
-- a page for each tag if it deleted them; they go later, many at once in the order of their keys.
CREATE TABLE ready_tags (
    tag      TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (tag, priority, seq)
) WITHOUT ROWID;

CREATE TABLE ready_tags_tidied (                -- how far: the key that was looked at last
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    tag      TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    seq      INTEGER NOT NULL
);
INSERT INTO ready_tags_tidied (id, tag, priority, seq) VALUES (1, '', 0, 0);

CREATE TABLE links (
    kind    TEXT    NOT NULL,
    source  TEXT    NOT NULL,
    target  TEXT    NOT NULL,
    id      TEXT    NOT NULL UNIQUE,            -- UUID v7
    created INTEGER NOT NULL,
    PRIMARY KEY (kind, source, target)
);
CREATE INDEX links_target ON links (kind, target, source);

CREATE TABLE documents (                        -- 'config' and 'routes': what their files said when they were loaded
    name     TEXT    NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    digest   BLOB    NOT NULL,                  -- of the content
    content  BLOB    NOT NULL,                  -- msgpack, checked
    source   TEXT    NOT NULL                   -- the file's own text
);

CREATE TABLE local_files (                      -- which files this node has loaded, as they were
    path   TEXT NOT NULL PRIMARY KEY,
    digest BLOB NOT NULL
);

CREATE TABLE templates (
    name     TEXT    NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    content  BLOB    NOT NULL                   -- msgpack
);

CREATE TABLE task_imports (                     -- what a file said of a task when it was imported
    seq     INTEGER NOT NULL PRIMARY KEY,
    source  TEXT    NOT NULL,                   -- the format
    digest  BLOB    NOT NULL,                   -- of the record
    version INTEGER NOT NULL                    -- of the task afterwards
);

CREATE TABLE sharing (                          -- how the tasks of this workspace travel with a repository
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    site     TEXT    NOT NULL,                  -- a random name, in the stamps of what was written here
    state    TEXT    NOT NULL,                  -- 'on', 'off', or '': files are read, and none is written
    notes    INTEGER NOT NULL,                  -- 1: notes and results travel too
    authors  INTEGER NOT NULL,                  -- 1: the names of authors and assignees do
    revision INTEGER NOT NULL                   -- of the last change of a setting, or of the last file that was read
);

CREATE TABLE shared (                           -- the line of each task and template in holdfast.jsonl
    key     TEXT    NOT NULL PRIMARY KEY,       -- id~uid of a task, ~name of a template
    seq     INTEGER UNIQUE,                     -- of the task; null: purged, or it cannot be one here
    version INTEGER NOT NULL,                   -- of the task or template when the line was compared with it
    line    TEXT    NOT NULL,
    odd     TEXT                                -- JSON: fields that are not what the line says, as they are here
);
