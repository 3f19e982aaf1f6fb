-- Readable with any SQLite tool: `sqlite3 runs.sqlite "select record ->> '$.nodes[0].name' from trial"`.
CREATE TABLE run (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    suite           TEXT    NOT NULL,
    title           TEXT    NOT NULL,
    suite_file      TEXT    NOT NULL,
    suite_text      TEXT    NOT NULL,
    options         TEXT    NOT NULL CHECK (json_valid(options)),
    environment     TEXT    NOT NULL CHECK (json_valid(environment)),
    rig_cost        TEXT             CHECK (json_valid(rig_cost)),
    goals           TEXT             CHECK (json_valid(goals)),
    netrig_version  TEXT    NOT NULL,
    planned_trials  INTEGER NOT NULL CHECK (planned_trials >= 0),
    started_unix_ms INTEGER NOT NULL,
    -- NULL while nobody has written an end: the runner works, or was killed.
    ended_unix_ms   INTEGER,
    ending          TEXT             CHECK (ending IN ('complete', 'interrupted', 'failed')),
    failure         TEXT,
    runner_pid      INTEGER NOT NULL,
    runner_start    INTEGER NOT NULL,
    runner_boot     TEXT    NOT NULL,
    CHECK ((ending IS NULL) = (ended_unix_ms IS NULL)),
    CHECK ((ending IS 'failed') = (failure IS NOT NULL))
) STRICT;

CREATE TABLE trial (
    id              INTEGER PRIMARY KEY,
    run             INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    scenario        TEXT    NOT NULL,
    ordinal         INTEGER NOT NULL CHECK (ordinal >= 1),
    started_unix_ms INTEGER NOT NULL,
    record          TEXT    NOT NULL CHECK (json_valid(record)),
    UNIQUE (run, scenario, ordinal)
) STRICT;
