-- # tables
CREATE TABLE "my schema"."sales_delayed_migration_run" (
	run_id VARCHAR COLLATE "C" NOT NULL,
	endpoint VARCHAR COLLATE "C" NOT NULL,
	target VARCHAR COLLATE "C" NOT NULL,
	cutoff TIMESTAMP WITH TIME ZONE,
	batch_size INTEGER NOT NULL,
	status VARCHAR COLLATE "C" NOT NULL,
	started TIMESTAMP WITH TIME ZONE NOT NULL,
	completed TIMESTAMP WITH TIME ZONE,
	holder VARCHAR COLLATE "C",
	PRIMARY KEY (run_id)
)
;
CREATE TABLE "my schema"."sales_delayed_migration_batches" (
	number INTEGER NOT NULL,
	run_id VARCHAR COLLATE "C" NOT NULL,
	status VARCHAR COLLATE "C" NOT NULL,
	prepared INTEGER NOT NULL,
	rejected INTEGER DEFAULT '0' NOT NULL,
	returned INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY (number)
)
;
CREATE INDEX sales_delayed_migration_batches_of_run ON "my schema"."sales_delayed_migration_batches" (run_id)

-- # lock
SELECT pg_try_advisory_lock(%(pg_try_advisory_lock_2)s::BIGINT) AS pg_try_advisory_lock_1
-- {'pg_try_advisory_lock_2': -2568889288440298330}
;
SELECT current_setting('idle_session_timeout', true)
;
SELECT set_config('idle_session_timeout', %(limit)s, false)
-- {'limit': '0'}
;
SELECT pg_advisory_unlock(%(pg_advisory_unlock_2)s::BIGINT) AS pg_advisory_unlock_1
-- {'pg_advisory_unlock_2': -2568889288440298330}
;
SELECT set_config('idle_session_timeout', %(limit)s, false)
-- {'limit': 1}

-- # holder
SELECT s.pid, s.usename, s.client_addr::text, s.backend_start::text FROM pg_locks l JOIN pg_stat_activity s ON s.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.classid::bigint = %(high)s AND l.objid::bigint = %(low)s
-- {'high': 3696851149, 'low': 2134230182}

-- # side table
CREATE TABLE "my schema"."sales_delayed_migrating" AS SELECT "message_id", "destination", "due_time", "next_attempt", CAST(0 AS integer) AS migration_batch, CAST(NULL AS text) AS migration_rejected FROM "my schema"."sales_delayed" WITH NO DATA
;
ALTER TABLE "my schema"."sales_delayed_migrating" ADD PRIMARY KEY (migration_batch, "message_id")

-- # dropping
DROP TABLE IF EXISTS "my schema"."sales_delayed_migrating", "my schema"."sales_delayed_migration_batches", "my schema"."sales_delayed_migration_run"

-- # writing
(begin)

-- # by index
SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)

-- # search
SELECT "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE ("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id) > (%(param_1)s::TIMESTAMP WITH TIME ZONE, %(param_2)s::VARCHAR) ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(param_3)s::INTEGER
-- {'param_2': 'm1', 'param_3': 7}

-- # hide
WITH found AS
(SELECT "my schema"."sales_delayed".next_attempt AS next_attempt, "my schema"."sales_delayed".message_id AS message_id
FROM "my schema"."sales_delayed"
WHERE ("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id) > (%(param_1)s::TIMESTAMP WITH TIME ZONE, %(param_2)s::VARCHAR) ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(param_3)s::INTEGER FOR UPDATE SKIP LOCKED),
removed AS
(DELETE FROM "my schema"."sales_delayed" USING found WHERE "my schema"."sales_delayed".message_id = found.message_id RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt),
moved AS
(INSERT INTO "my schema"."sales_delayed_migrating" (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT removed.message_id AS message_id, removed.destination AS destination, removed.due_time AS due_time, removed.next_attempt AS next_attempt, %(param_4)s::INTEGER AS anon_3, NULL AS anon_4
FROM removed RETURNING "my schema"."sales_delayed_migrating".migration_batch)
 SELECT found.next_attempt, found.message_id, (SELECT count(*) AS count_1
FROM found) AS anon_1, (SELECT count(*) AS count_2
FROM moved) AS anon_2
FROM found ORDER BY found.next_attempt DESC, found.message_id DESC
 LIMIT %(param_5)s::INTEGER
-- {'param_2': 'm1', 'param_3': 7, 'param_4': 3, 'param_5': 1}

-- # among
SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = ANY (%(ids_1)s::VARCHAR(255)[])

-- # moving
INSERT INTO "my schema"."sales_delayed_migrating" (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt, %(param_1)s::INTEGER AS anon_1, NULL AS anon_2
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = ANY (%(ids_1)s::VARCHAR(255)[])
-- {'param_1': 3}

-- # removing
DELETE FROM "my schema"."sales_delayed" WHERE "my schema"."sales_delayed".message_id = ANY (%(ids_1)s::VARCHAR(255)[])

-- # rejecting
UPDATE "my schema"."sales_delayed_migrating" SET migration_rejected=%(rejected_because)s::VARCHAR WHERE "my schema"."sales_delayed_migrating".migration_batch = %(migration_batch_1)s::INTEGER AND "my schema"."sales_delayed_migrating".message_id = %(rejected_row)s::VARCHAR
-- {'migration_batch_1': 3}

-- # bytewise
SELECT "my schema"."sales_delayed".destination
FROM "my schema"."sales_delayed"

-- # rights_checks
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt
FROM "my schema"."sales_delayed"
WHERE %(param_1)s::INTEGER = %(param_2)s::INTEGER FOR UPDATE SKIP LOCKED
-- {'param_1': 1, 'param_2': 0}
;
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt) SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt
FROM "my schema"."sales_delayed"
WHERE %(param_1)s::INTEGER = %(param_2)s::INTEGER
-- {'param_1': 1, 'param_2': 0}
;
DELETE FROM "my schema"."sales_delayed" WHERE %(param_1)s::INTEGER = %(param_2)s::INTEGER
-- {'param_1': 1, 'param_2': 0}

-- # may create
SELECT has_schema_privilege(coalesce(NULL, current_schema()), %(has_schema_privilege_2)s::VARCHAR) AS has_schema_privilege_1
-- {'has_schema_privilege_2': 'CREATE'}

-- # name
"my schema"."sales_delayed"

-- # clock
SELECT clock_timestamp() AS clock_timestamp_1
