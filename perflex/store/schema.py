"""The tables of the store, as the steps that make them: a new one is a new step at the end."""

from __future__ import annotations

# Marks the file as perflex's own ("pflx").
APPLICATION = 0x70666C78

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # Descriptions of kernels, by the digest of the text.
        "CREATE TABLE scops (digest TEXT PRIMARY KEY, text TEXT NOT NULL)",
        # Which description a kernel has, by the kernel's key.
        "CREATE TABLE kernels (key TEXT PRIMARY KEY, scop TEXT NOT NULL, version TEXT NOT NULL)",
        # What was counted of a description, in portions: JSON from the name of each count to its record.
        """
        CREATE TABLE counts (
            number INTEGER PRIMARY KEY, scop TEXT NOT NULL, version TEXT NOT NULL,
            digest TEXT NOT NULL, text TEXT NOT NULL
        )
        """,
        "CREATE INDEX counts_by_scop ON counts (scop, version)",
        # Which states of the package have written, and when (Julian day).
        "CREATE TABLE versions (version TEXT PRIMARY KEY, used REAL NOT NULL)",
    ),
    (
        # What makes timings comparable, each once: the number is a digest of the rest, so that samples find it again
        # whatever happens to this table. The label is what people call the kernel.
        """
        CREATE TABLE measurement_keys (
            number INTEGER PRIMARY KEY, kernel TEXT NOT NULL, sizes TEXT NOT NULL, device TEXT NOT NULL,
            driver TEXT NOT NULL, conditions TEXT NOT NULL, label TEXT NOT NULL
        )
        """,
        # Timings, in the order added, each with a checksum.
        """
        CREATE TABLE samples (
            number INTEGER PRIMARY KEY, key INTEGER NOT NULL REFERENCES measurement_keys, session TEXT NOT NULL,
            round INTEGER NOT NULL, seconds REAL NOT NULL, launches INTEGER NOT NULL, started REAL NOT NULL,
            checksum INTEGER NOT NULL, UNIQUE (key, session, round)
        )
        """,
        # What failed, each with a checksum, and the last sample there was before it.
        """
        CREATE TABLE failures (
            number INTEGER PRIMARY KEY, key INTEGER NOT NULL REFERENCES measurement_keys, session TEXT NOT NULL,
            kind TEXT NOT NULL, message TEXT NOT NULL, started REAL NOT NULL, after INTEGER NOT NULL,
            checksum INTEGER NOT NULL, UNIQUE (key, session, kind, started)
        )
        """,
        # The sessions of work that has not come to its end yet.
        "CREATE TABLE unfinished (work TEXT NOT NULL, session TEXT NOT NULL, PRIMARY KEY (work, session))",
    ),
    (
        # What the system reported of each sample, as JSON; NULL where nothing is known, as in rows from before.
        "ALTER TABLE samples ADD COLUMN activity TEXT",
        # A checksum of its own. The other one stays what it was, since processes of an earlier version may have the
        # file open: they go on reading and writing samples, and see no damage in those that say more.
        "ALTER TABLE samples ADD COLUMN activity_checksum INTEGER",
    ),
    (
        # Checksums of what the others leave out: labels, the numbers of rows, what a failure is older than. They are
        # columns of their own, for the reason above; rows that processes of version 3 go on to add have none.
        "ALTER TABLE measurement_keys ADD COLUMN label_checksum INTEGER",
        "UPDATE measurement_keys SET label_checksum = seal(number, label)",
        "ALTER TABLE samples ADD COLUMN seal INTEGER",
        "UPDATE samples SET seal = seal(number, checksum, activity_checksum)",
        "ALTER TABLE failures ADD COLUMN seal INTEGER",
        "UPDATE failures SET seal = seal(number, after, checksum)",
        "ALTER TABLE kernels ADD COLUMN checksum TEXT",
        # In place of `unfinished`, which processes of version 3 go on to use: they give no values for more columns.
        """
        CREATE TABLE unfinished_work (
            number INTEGER PRIMARY KEY, work TEXT NOT NULL, session TEXT NOT NULL, checksum INTEGER NOT NULL,
            UNIQUE (work, session)
        )
        """,
        """
        INSERT INTO unfinished_work (work, session, checksum)
        SELECT work, session, seal(work, session) FROM unfinished
        """,
    ),
)
