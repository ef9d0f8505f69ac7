-- # registry
CREATE TABLE "my schema"."sales_delayed_loads" (
	load_id VARCHAR COLLATE "C" NOT NULL,
	is_stream INTEGER NOT NULL,
	batch BIGINT,
	token VARCHAR COLLATE "C",
	host VARCHAR COLLATE "C" NOT NULL,
	pid INTEGER NOT NULL,
	place VARCHAR COLLATE "C",
	process_started BIGINT,
	began TIMESTAMP WITH TIME ZONE NOT NULL,
	heartbeat TIMESTAMP WITH TIME ZONE NOT NULL,
	lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
	finished_at TIMESTAMP WITH TIME ZONE,
	stored BIGINT,
	skipped BIGINT,
	messages BIGINT,
	rejected BIGINT,
	first_due TIMESTAMP WITH TIME ZONE,
	last_due TIMESTAMP WITH TIME ZONE,
	cancelled_at TIMESTAMP WITH TIME ZONE,
	cancelled_by VARCHAR COLLATE "C",
	number INTEGER,
	PRIMARY KEY (load_id)
)
;
CREATE UNIQUE INDEX sales_delayed_loads_number ON "my schema"."sales_delayed_loads" (number)

-- # staging
CREATE UNLOGGED TABLE "my schema"."sales_delayed_load_0123456789abcdef0123" (
	attempt BIGINT NOT NULL,
	message_id VARCHAR COLLATE "C" NOT NULL,
	destination VARCHAR COLLATE "C" NOT NULL,
	due_time TIMESTAMP WITH TIME ZONE NOT NULL,
	next_attempt TIMESTAMP WITH TIME ZONE NOT NULL,
	failure_count INTEGER NOT NULL,
	headers VARCHAR,
	properties VARCHAR,
	body BYTEA NOT NULL,
	message_key VARCHAR COLLATE "C",
	not_after TIMESTAMP WITH TIME ZONE
)

-- # begin
(begin)

-- # take time
SET LOCAL statement_timeout = 0
;
SET LOCAL lock_timeout = 0

-- # create
(create)
;
ALTER TABLE "my schema"."sales_delayed_load_0123456789abcdef0123" SET (autovacuum_enabled = off), ALTER COLUMN headers SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL

-- # drop
SELECT set_config('lock_timeout', %(limit)s, true)
-- {'limit': '2000ms'}
;
DROP TABLE IF EXISTS "a:b"

-- # empty
SELECT set_config('lock_timeout', %(limit)s, true)
-- {'limit': '2000ms'}
;
TRUNCATE TABLE "a:b"

-- # promoting, duplicates: error
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])

-- # promoting, duplicates: ignore
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1]) ON CONFLICT DO NOTHING

-- # promoting, duplicates: replace
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1]) ON CONFLICT (message_id) DO UPDATE SET destination = excluded.destination, due_time = CASE WHEN ("my schema"."sales_delayed".due_time <= excluded.due_time AND least(excluded.due_time, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = excluded.due_time) THEN CASE WHEN ("my schema"."sales_delayed".due_time > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_2)s::TIMESTAMP WITH TIME ZONE END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, message_key = %(param_3)s::VARCHAR COLLATE "C", first_sent = %(param_4)s::TIMESTAMP WITH TIME ZONE, failures = %(param_5)s::VARCHAR, failures_of = %(param_6)s::VARCHAR COLLATE "C"

-- # claimed


-- # there already
SELECT DISTINCT staged.message_id
FROM (SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination AS destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers AS headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties AS properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body AS body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged JOIN "my schema"."sales_delayed" ON "my schema"."sales_delayed".message_id = staged.message_id
WHERE staged.message_id > %(message_id_1)s::VARCHAR COLLATE "C" ORDER BY staged.message_id
 LIMIT %(param_1)s::INTEGER
-- {'message_id_1': 'm', 'param_1': 10}

-- # distinct ids
SELECT count(DISTINCT staged.message_id) AS count_1
FROM (SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination AS destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers AS headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties AS properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body AS body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged

-- # twice
SELECT staged.message_id
FROM (SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination AS destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers AS headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties AS properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body AS body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged GROUP BY staged.message_id
HAVING count(*) > %(count_1)s::INTEGER ORDER BY staged.message_id
 LIMIT %(param_1)s::INTEGER
-- {'count_1': 1, 'param_1': 10}

-- # waiting already
SELECT staged.message_id
FROM (SELECT "my schema"."sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "my schema"."sales_delayed_load_0123456789abcdef0123".destination AS destination, "my schema"."sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "my schema"."sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "my schema"."sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "my schema"."sales_delayed_load_0123456789abcdef0123".headers AS headers, "my schema"."sales_delayed_load_0123456789abcdef0123".properties AS properties, "my schema"."sales_delayed_load_0123456789abcdef0123".body AS body
FROM "my schema"."sales_delayed_load_0123456789abcdef0123"
WHERE "my schema"."sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged JOIN "my schema"."sales_delayed" ON "my schema"."sales_delayed".message_id = staged.message_id ORDER BY staged.message_id
 LIMIT %(param_1)s::INTEGER
-- {'param_1': 10}

-- # registry insert
INSERT INTO "my schema"."sales_delayed_loads" (load_id, is_stream, batch, token, host, pid, place, process_started, began, heartbeat, lease_until, finished_at, stored, skipped, messages, rejected, first_due, last_due, cancelled_at, cancelled_by, number) VALUES (%(load_id)s::VARCHAR COLLATE "C", %(is_stream)s::INTEGER, %(batch)s::BIGINT, %(token)s::VARCHAR COLLATE "C", %(host)s::VARCHAR COLLATE "C", %(pid)s::INTEGER, %(place)s::VARCHAR COLLATE "C", %(process_started)s::BIGINT, %(began)s::TIMESTAMP WITH TIME ZONE, %(heartbeat)s::TIMESTAMP WITH TIME ZONE, %(lease_until)s::TIMESTAMP WITH TIME ZONE, %(finished_at)s::TIMESTAMP WITH TIME ZONE, %(stored)s::BIGINT, %(skipped)s::BIGINT, %(messages)s::BIGINT, %(rejected)s::BIGINT, %(first_due)s::TIMESTAMP WITH TIME ZONE, %(last_due)s::TIMESTAMP WITH TIME ZONE, %(cancelled_at)s::TIMESTAMP WITH TIME ZONE, %(cancelled_by)s::VARCHAR COLLATE "C", %(number)s::INTEGER) ON CONFLICT DO NOTHING
