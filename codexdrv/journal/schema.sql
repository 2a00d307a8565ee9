-- The journal, version 1. One truth for all processes; see docs/journal.md.
-- Times are Unix milliseconds, UTC. Ids of threads and turns are the server's.

-- One input that a caller entrusted to us; how it stands is the fold of its facts.
CREATE TABLE deliveries (
  id TEXT PRIMARY KEY,
  thread TEXT NOT NULL,
  seq INTEGER NOT NULL CHECK (seq > 0),
  target TEXT,
  source TEXT,
  text BLOB NOT NULL CHECK (length(text) > 0), -- UTF-8, byte for byte
  when_busy TEXT NOT NULL,
  expires_at_ms INTEGER,                        -- queued longer than that: failed
  admitted_at_ms INTEGER NOT NULL,
  -- the fold; no CHECK on phase: a word that we do not know must stay readable
  phase TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision >= 0),
  attempts INTEGER NOT NULL CHECK (attempts >= 0),
  reason TEXT,
  why TEXT,
  turn TEXT,
  answered_turn TEXT,
  outcome TEXT,
  stored INTEGER NOT NULL CHECK (stored IN (0, 1)),
  late INTEGER NOT NULL CHECK (late IN (0, 1)),
  parked INTEGER NOT NULL CHECK (parked IN (0, 1)),
  out_of_order INTEGER NOT NULL CHECK (out_of_order IN (0, 1)),
  dispatch TEXT CHECK (dispatch IS NULL OR json_valid(dispatch)),
  changed_at_ms INTEGER NOT NULL,
  UNIQUE (thread, seq),
  CHECK (phase <> 'pending' OR dispatch IS NOT NULL),
  CHECK (stored = 0 OR phase = 'surfaced')
) STRICT, WITHOUT ROWID;

-- Lanes look only at what is live, however many rows have ended.
CREATE INDEX live_deliveries ON deliveries (thread, seq)
  WHERE phase NOT IN ('surfaced', 'failed', 'cancelled');

-- Surfaced by evidence (not an operator's word), but not yet read back, or its turn runs.
CREATE INDEX unsettled_deliveries ON deliveries (thread, seq)
  WHERE phase = 'surfaced' AND reason IS NOT 'operator' AND (stored = 0 OR outcome = 'running');

CREATE INDEX deliveries_by_admission ON deliveries (admitted_at_ms, thread, seq);

-- What became true, in order; written once, never changed.
CREATE TABLE facts (
  serial INTEGER PRIMARY KEY AUTOINCREMENT,
  delivery TEXT NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
  revision INTEGER NOT NULL CHECK (revision > 0),
  fact TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  life INTEGER REFERENCES lives (life),        -- NULL: a command wrote it
  generation INTEGER,
  reason TEXT,
  why TEXT,
  turn TEXT,
  outcome TEXT,
  attempt INTEGER,
  dispatch TEXT CHECK (dispatch IS NULL OR json_valid(dispatch)),
  witness TEXT CHECK (witness IS NULL OR json_valid(witness)), -- what the evidence saw
  UNIQUE (delivery, revision)
) STRICT;

CREATE TRIGGER facts_stay BEFORE UPDATE ON facts
BEGIN
  SELECT RAISE (ABORT, 'facts are append-only');
END;

-- One run of a supervisor; only the newest may write as dispatcher.
CREATE TABLE lives (
  life INTEGER PRIMARY KEY AUTOINCREMENT,
  pid INTEGER NOT NULL,
  start_ticks INTEGER,
  boot_id TEXT,
  version TEXT NOT NULL,
  began_at_ms INTEGER NOT NULL
) STRICT;

-- The final agent message of the turn that took a delivery; kept until acknowledged.
CREATE TABLE replies (
  id TEXT PRIMARY KEY,
  delivery TEXT NOT NULL UNIQUE REFERENCES deliveries (id) ON DELETE CASCADE,
  text TEXT NOT NULL,
  posted_at_ms INTEGER NOT NULL,
  seen_at_ms INTEGER,
  acked_at_ms INTEGER
) STRICT, WITHOUT ROWID;

-- What is left of a pruned delivery: its id stays taken.
CREATE TABLE tombstones (
  id_hash BLOB PRIMARY KEY,
  request_hash BLOB NOT NULL,
  thread TEXT NOT NULL,
  seq INTEGER NOT NULL,                         -- so that positions are never given twice
  phase TEXT NOT NULL,
  buried_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tombstones_by_thread ON tombstones (thread, seq);
CREATE INDEX tombstones_by_age ON tombstones (buried_at_ms);
