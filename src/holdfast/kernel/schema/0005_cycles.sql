-- PEER cycles: one document for each, and which is the current one of its prefix.
-- oldest writer: 5

CREATE TABLE cycles (
    prefix   TEXT    NOT NULL,                  -- 'peer:spec:NAME', 'peer:instruction:NAME' or 'peer:global'
    number   INTEGER NOT NULL,
    sequence INTEGER NOT NULL,                  -- the version, also of its newest event
    revision INTEGER NOT NULL,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    document BLOB    NOT NULL,                  -- JSON
    shared   TEXT    NOT NULL,                  -- digest of the one last exchanged with another place, '' before that
    PRIMARY KEY (prefix, number)
);

CREATE TABLE cycle_currents (
    prefix TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
);
