-- # tables
CREATE TABLE "sales_delayed_migration_run" (
	run_id TEXT NOT NULL,
	endpoint TEXT NOT NULL,
	target TEXT NOT NULL,
	cutoff DATETIME,
	batch_size INTEGER NOT NULL,
	status TEXT NOT NULL,
	started DATETIME NOT NULL,
	completed DATETIME,
	holder TEXT,
	PRIMARY KEY (run_id)
)
;
CREATE TABLE "sales_delayed_migration_batches" (
	number INTEGER NOT NULL,
	run_id TEXT NOT NULL,
	status TEXT NOT NULL,
	prepared INTEGER NOT NULL,
	rejected INTEGER DEFAULT '0' NOT NULL,
	returned INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY (number)
)
;
CREATE INDEX sales_delayed_migration_batches_of_run ON "sales_delayed_migration_batches" (run_id)

-- # side table
CREATE TABLE "sales_delayed_migrating" AS SELECT "message_id", "destination", "due_time", "next_attempt", CAST(0 AS INTEGER) AS migration_batch, CAST(NULL AS TEXT) AS migration_rejected FROM "sales_delayed" WHERE 0
;
CREATE UNIQUE INDEX "sales_delayed_migrating_key" ON "sales_delayed_migrating" (migration_batch, "message_id")

-- # dropping
DROP TABLE IF EXISTS "sales_delayed_migrating"
;
DROP TABLE IF EXISTS "sales_delayed_migration_batches"
;
DROP TABLE IF EXISTS "sales_delayed_migration_run"

-- # writing
BEGIN IMMEDIATE

-- # by index


-- # search
SELECT "sales_delayed".next_attempt, "sales_delayed".message_id
FROM "sales_delayed"
WHERE ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_2': 'm1', 'param_3': 7, 'param_4': 0}

-- # hide
SELECT "sales_delayed".next_attempt, "sales_delayed".message_id
FROM "sales_delayed"
WHERE ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_2': 'm1', 'param_3': 7, 'param_4': 0}
;
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (__[POSTCOMPILE_ids_1]) AND "sales_delayed".next_attempt > ?
;
INSERT INTO "sales_delayed_migrating" (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, ? AS anon_1, NULL AS anon_2
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (__[POSTCOMPILE_ids_1])
-- {'param_1': 3}
;
DELETE FROM "sales_delayed" WHERE "sales_delayed".message_id IN (SELECT "sales_delayed_migrating".message_id
FROM "sales_delayed_migrating"
WHERE "sales_delayed_migrating".migration_batch = ?)
-- {'migration_batch_1': 3}

-- # among
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (__[POSTCOMPILE_ids_1])

-- # moving
INSERT INTO "sales_delayed_migrating" (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, ? AS anon_1, NULL AS anon_2
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (__[POSTCOMPILE_ids_1])
-- {'param_1': 3}

-- # removing
DELETE FROM "sales_delayed" WHERE "sales_delayed".message_id IN (SELECT "sales_delayed_migrating".message_id
FROM "sales_delayed_migrating"
WHERE "sales_delayed_migrating".migration_batch = ?)
-- {'migration_batch_1': 3}

-- # rejecting
UPDATE "sales_delayed_migrating" SET migration_rejected=? WHERE "sales_delayed_migrating".migration_batch = ? AND "sales_delayed_migrating".message_id = ?
-- {'migration_batch_1': 3}

-- # bytewise
SELECT "sales_delayed".destination
FROM "sales_delayed"

-- # rights_checks
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt
FROM "sales_delayed"
WHERE ? = ?
-- {'param_1': 1, 'param_2': 0}
;
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt) SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt
FROM "sales_delayed"
WHERE ? = ?
-- {'param_1': 1, 'param_2': 0}
;
DELETE FROM "sales_delayed" WHERE ? = ?
-- {'param_1': 1, 'param_2': 0}

-- # may create


-- # name
"sales_delayed"

-- # clock
this computer's
