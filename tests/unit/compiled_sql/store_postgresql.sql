-- # table
CREATE TABLE "my schema"."sales_delayed" (
	message_id VARCHAR COLLATE "C" NOT NULL,
	destination VARCHAR COLLATE "C" NOT NULL,
	due_time TIMESTAMP WITH TIME ZONE NOT NULL,
	next_attempt TIMESTAMP WITH TIME ZONE NOT NULL,
	failure_count INTEGER DEFAULT '0' NOT NULL,
	headers VARCHAR,
	properties VARCHAR,
	body BYTEA NOT NULL,
	message_key VARCHAR COLLATE "C",
	first_sent TIMESTAMP WITH TIME ZONE,
	failures VARCHAR,
	failures_of VARCHAR COLLATE "C",
	not_after TIMESTAMP WITH TIME ZONE,
	load_number INTEGER,
	PRIMARY KEY (message_id)
)
;
CREATE INDEX sales_delayed_due ON "my schema"."sales_delayed" (next_attempt, message_id)
;
CREATE INDEX sales_delayed_failing ON "my schema"."sales_delayed" (next_attempt, message_id) WHERE failure_count > 0
;
CREATE UNIQUE INDEX sales_delayed_keys ON "my schema"."sales_delayed" (message_key) WHERE message_key IS NOT NULL
;
CREATE INDEX sales_delayed_load ON "my schema"."sales_delayed" (load_number, message_id) WHERE load_number IS NOT NULL

-- # buckets
SELECT numbered.number, count(*) AS messages
FROM (SELECT floor(EXTRACT(epoch FROM CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END) / CAST(%(seconds)s::BIGINT AS NUMERIC)) AS number, "my schema"."sales_delayed".destination AS destination
FROM "my schema"."sales_delayed") AS numbered GROUP BY numbered.number ORDER BY numbered.number

-- # claimed
SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = ANY (%(ids)s::VARCHAR[] COLLATE "C")

-- # count
SELECT count(*) AS count_1
FROM "my schema"."sales_delayed"

-- # count_failure
UPDATE "my schema"."sales_delayed" SET next_attempt=%(new_next_attempt)s::TIMESTAMP WITH TIME ZONE, failure_count=("my schema"."sales_delayed".failure_count + %(failure_count_1)s::INTEGER), failures=right(CASE WHEN ("my schema"."sales_delayed".failures_of = "my schema"."sales_delayed".message_id) THEN "my schema"."sales_delayed".failures ELSE %(param_1)s::VARCHAR END || %(line)s::VARCHAR, 8000), failures_of="my schema"."sales_delayed".message_id WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"
-- {'failure_count_1': 1, 'param_1': ''}

-- # count_failure_stored
UPDATE "my schema"."sales_delayed" SET next_attempt=%(new_next_attempt)s::TIMESTAMP WITH TIME ZONE, failure_count=("my schema"."sales_delayed".failure_count + %(failure_count_1)s::INTEGER), failures=right(CASE WHEN ("my schema"."sales_delayed".failures_of = "my schema"."sales_delayed".message_id) THEN "my schema"."sales_delayed".failures ELSE %(param_1)s::VARCHAR END || %(line)s::VARCHAR, 8000), failures_of="my schema"."sales_delayed".message_id WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"
-- {'failure_count_1': 1, 'param_1': ''}

-- # count_some
SELECT count(*) AS count_1
FROM (SELECT %(param_1)s::INTEGER AS anon_1
FROM "my schema"."sales_delayed"
 LIMIT %(limit)s::INTEGER) AS "some"
-- {'param_1': 1}

-- # due
WITH locked AS
(SELECT "my schema"."sales_delayed".message_id AS message_id, "my schema"."sales_delayed".destination AS destination, "my schema"."sales_delayed".due_time AS due_time, "my schema"."sales_delayed".next_attempt AS next_attempt, "my schema"."sales_delayed".failure_count AS failure_count, "my schema"."sales_delayed".headers AS headers, "my schema"."sales_delayed".properties AS properties, "my schema"."sales_delayed".body AS body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, CASE WHEN (tableoid != (SELECT CAST(%(param_1)s::VARCHAR AS REGCLASS) AS anon_1)) THEN tableoid ELSE NULL END AS partition, CAST(ctid AS TEXT) AS location
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".next_attempt <= (SELECT %(at)s::TIMESTAMP WITH TIME ZONE AS anon_2) ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(limit)s::INTEGER FOR UPDATE SKIP LOCKED)
 SELECT summed.message_id, summed.destination, summed.due_time, summed.next_attempt, summed.failure_count, summed.headers, summed.properties, summed.body, summed.not_after, summed.partition, summed.location
FROM (SELECT sized.message_id AS message_id, sized.destination AS destination, sized.due_time AS due_time, sized.next_attempt AS next_attempt, sized.failure_count AS failure_count, sized.headers AS headers, sized.properties AS properties, sized.body AS body, sized.not_after AS not_after, sized.partition AS partition, sized.location AS location, sized.size AS size, sum(sized.size) OVER (ORDER BY sized.next_attempt, sized.message_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total, row_number() OVER (ORDER BY sized.next_attempt, sized.message_id) AS number
FROM (SELECT locked.message_id AS message_id, locked.destination AS destination, locked.due_time AS due_time, locked.next_attempt AS next_attempt, locked.failure_count AS failure_count, locked.headers AS headers, locked.properties AS properties, locked.body AS body, locked.not_after AS not_after, locked.partition AS partition, locked.location AS location, length(locked.body) AS size
FROM locked) AS sized) AS summed
WHERE summed.total <= %(most_bytes)s::BIGINT OR summed.number = %(number_1)s::INTEGER ORDER BY summed.next_attempt, summed.message_id
-- {'param_1': '"my schema"."sales_delayed"', 'number_1': 1}

-- # due_behind
WITH locked AS
(SELECT "my schema"."sales_delayed".message_id AS message_id, "my schema"."sales_delayed".destination AS destination, "my schema"."sales_delayed".due_time AS due_time, "my schema"."sales_delayed".next_attempt AS next_attempt, "my schema"."sales_delayed".failure_count AS failure_count, "my schema"."sales_delayed".headers AS headers, "my schema"."sales_delayed".properties AS properties, "my schema"."sales_delayed".body AS body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, CASE WHEN (tableoid != (SELECT CAST(%(param_1)s::VARCHAR AS REGCLASS) AS anon_1)) THEN tableoid ELSE NULL END AS partition, CAST(ctid AS TEXT) AS location
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".next_attempt <= (SELECT %(at)s::TIMESTAMP WITH TIME ZONE AS anon_2) AND ("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id) > (%(after_next_attempt)s::TIMESTAMP WITH TIME ZONE, %(after_message_id)s::VARCHAR COLLATE "C") ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(limit)s::INTEGER FOR UPDATE SKIP LOCKED)
 SELECT summed.message_id, summed.destination, summed.due_time, summed.next_attempt, summed.failure_count, summed.headers, summed.properties, summed.body, summed.not_after, summed.partition, summed.location
FROM (SELECT sized.message_id AS message_id, sized.destination AS destination, sized.due_time AS due_time, sized.next_attempt AS next_attempt, sized.failure_count AS failure_count, sized.headers AS headers, sized.properties AS properties, sized.body AS body, sized.not_after AS not_after, sized.partition AS partition, sized.location AS location, sized.size AS size, sum(sized.size) OVER (ORDER BY sized.next_attempt, sized.message_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total, row_number() OVER (ORDER BY sized.next_attempt, sized.message_id) AS number
FROM (SELECT locked.message_id AS message_id, locked.destination AS destination, locked.due_time AS due_time, locked.next_attempt AS next_attempt, locked.failure_count AS failure_count, locked.headers AS headers, locked.properties AS properties, locked.body AS body, locked.not_after AS not_after, locked.partition AS partition, locked.location AS location, length(locked.body) AS size
FROM locked) AS sized) AS summed
WHERE summed.total <= %(most_bytes)s::BIGINT OR summed.number = %(number_1)s::INTEGER ORDER BY summed.next_attempt, summed.message_id
-- {'param_1': '"my schema"."sales_delayed"', 'number_1': 1}

-- # end_located
WITH removed AS
(DELETE FROM ONLY "my schema"."sales_delayed" WHERE ctid = ANY (CAST(CAST(%(locations)s AS TEXT[]) AS TID[])) AND xmax = CAST(pg_current_xact_id() AS XID) RETURNING message_id AS message_id, message_key AS message_key, load_number AS load_number, destination AS destination, CASE WHEN (due_time = next_attempt) THEN due_time WHEN (least(next_attempt, due_time + 999 * INTERVAL '1 microsecond') = next_attempt AND least(due_time, next_attempt + 999 * INTERVAL '1 microsecond') = due_time) THEN next_attempt ELSE due_time END AS due_time, failure_count AS failure_count, sha256(body) AS body_hash, CASE WHEN (failures_of = message_id) THEN failures END AS failures)
 INSERT INTO "my schema"."sales_delayed_history" (message_id, message_key, load_number, destination, due_time, ended_at, attempts, ending, ended_by, body_hash, failures) SELECT removed.message_id AS message_id, removed.message_key AS message_key, removed.load_number AS load_number, removed.destination AS destination, removed.due_time AS due_time, %(history_at)s::TIMESTAMP WITH TIME ZONE AS ended_at, removed.failure_count + %(history_attempts)s::INTEGER AS attempts, CASE WHEN (%(history_ending)s::VARCHAR COLLATE "C" = %(param_1)s::VARCHAR COLLATE "C" AND removed.due_time > %(history_at)s::TIMESTAMP WITH TIME ZONE) THEN %(param_2)s::VARCHAR COLLATE "C" ELSE %(history_ending)s::VARCHAR COLLATE "C" END AS ending, %(history_by)s::VARCHAR COLLATE "C" AS ended_by, removed.body_hash AS body_hash, removed.failures AS failures
FROM removed
-- {'param_1': 'delivered', 'param_2': 'handed-over'}

-- # first
SELECT "my schema"."sales_delayed".next_attempt
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".next_attempt <= %(param_1)s::TIMESTAMP WITH TIME ZONE ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(param_2)s::INTEGER
-- {'param_2': 1}

-- # first_behind
SELECT "my schema"."sales_delayed".next_attempt
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".next_attempt <= %(param_1)s::TIMESTAMP WITH TIME ZONE AND ("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id) > (%(after_next_attempt)s::TIMESTAMP WITH TIME ZONE, %(after_message_id)s::VARCHAR COLLATE "C") ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(param_2)s::INTEGER
-- {'param_2': 1}

-- # get
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".failure_count, "my schema"."sales_delayed".headers, "my schema"."sales_delayed".properties, "my schema"."sales_delayed".body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, "my schema"."sales_delayed".message_key, "my schema"."sales_delayed".failures, "my schema"."sales_delayed".failures_of
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # increment
UPDATE "my schema"."sales_delayed" SET next_attempt=%(new_next_attempt)s::TIMESTAMP WITH TIME ZONE, failure_count=("my schema"."sales_delayed".failure_count + %(failure_count_1)s::INTEGER) WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"
-- {'failure_count_1': 1}

-- # increment_stored
UPDATE "my schema"."sales_delayed" SET next_attempt=%(new_next_attempt)s::TIMESTAMP WITH TIME ZONE, failure_count=("my schema"."sales_delayed".failure_count + %(failure_count_1)s::INTEGER) WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"
-- {'failure_count_1': 1}

-- # mark
UPDATE "my schema"."sales_delayed" SET due_time=CASE WHEN ("my schema"."sales_delayed".due_time > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_2)s::TIMESTAMP WITH TIME ZONE END

-- # page
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".failure_count, "my schema"."sales_delayed".headers, "my schema"."sales_delayed".properties, "my schema"."sales_delayed".body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, "my schema"."sales_delayed".message_key, "my schema"."sales_delayed".failures, "my schema"."sales_delayed".failures_of
FROM "my schema"."sales_delayed" ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(limit)s::INTEGER

-- # page_behind
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".failure_count, "my schema"."sales_delayed".headers, "my schema"."sales_delayed".properties, "my schema"."sales_delayed".body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, "my schema"."sales_delayed".message_key, "my schema"."sales_delayed".failures, "my schema"."sales_delayed".failures_of
FROM "my schema"."sales_delayed"
WHERE ("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id) > (%(after_next_attempt)s::TIMESTAMP WITH TIME ZONE, %(after_message_id)s::VARCHAR COLLATE "C") ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(limit)s::INTEGER

-- # park
UPDATE "my schema"."sales_delayed" SET next_attempt=%(next_attempt)s::TIMESTAMP WITH TIME ZONE

-- # park_claimed
UPDATE "my schema"."sales_delayed" SET next_attempt=%(next_attempt)s::TIMESTAMP WITH TIME ZONE WHERE "my schema"."sales_delayed".message_id = ANY (%(ids)s::VARCHAR[] COLLATE "C")

-- # postpone
UPDATE "my schema"."sales_delayed" SET next_attempt=%(new_next_attempt)s::TIMESTAMP WITH TIME ZONE WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # postpone_stored
UPDATE "my schema"."sales_delayed" SET next_attempt=%(new_next_attempt)s::TIMESTAMP WITH TIME ZONE WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # remove_located
DELETE FROM ONLY "my schema"."sales_delayed" WHERE ctid = ANY (CAST(CAST(%(locations)s AS TEXT[]) AS TID[])) AND xmax = CAST(pg_current_xact_id() AS XID)

-- # remove_many
DELETE FROM "my schema"."sales_delayed" WHERE "my schema"."sales_delayed".message_id = ANY (%(ids)s::VARCHAR[] COLLATE "C")

-- # remove_stored
DELETE FROM "my schema"."sales_delayed" WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # set_due_time
UPDATE "my schema"."sales_delayed" SET due_time=%(new_due_time)s::TIMESTAMP WITH TIME ZONE WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # shift
UPDATE "my schema"."sales_delayed" SET not_after=timezone(%(timezone_1)s::VARCHAR, timezone(%(timezone_2)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END) + least(timezone(%(timezone_3)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END + %(microseconds)s::BIGINT * INTERVAL '1 microsecond') - timezone(%(timezone_4)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END), timezone(%(timezone_5)s::VARCHAR, %(param_1)s::TIMESTAMP WITH TIME ZONE) - timezone(%(timezone_6)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END))), due_time=(CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END + %(microseconds)s::BIGINT * INTERVAL '1 microsecond'), next_attempt=(CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END + %(microseconds)s::BIGINT * INTERVAL '1 microsecond'), failure_count=%(failure_count)s::INTEGER
-- {'timezone_1': 'UTC', 'timezone_2': 'UTC', 'timezone_3': 'UTC', 'timezone_4': 'UTC', 'timezone_5': 'UTC', 'timezone_6': 'UTC', 'failure_count': 0}

-- # show
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".failure_count, "my schema"."sales_delayed".headers, "my schema"."sales_delayed".properties, "my schema"."sales_delayed".body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, "my schema"."sales_delayed".message_key, "my schema"."sales_delayed".failures, "my schema"."sales_delayed".failures_of
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = ANY (%(ids)s::VARCHAR[] COLLATE "C")

-- # shown
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".failure_count, "my schema"."sales_delayed".headers, "my schema"."sales_delayed".properties, "my schema"."sales_delayed".body, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END AS not_after, "my schema"."sales_delayed".message_key, "my schema"."sales_delayed".failures, "my schema"."sales_delayed".failures_of
FROM "my schema"."sales_delayed"

-- # status
SELECT clock_timestamp() AS now, current_setting(%(current_setting_1)s::VARCHAR) = %(current_setting_2)s::VARCHAR AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT "my schema"."sales_delayed".due_time AS due_time, "my schema"."sales_delayed".next_attempt AS next_attempt
FROM "my schema"."sales_delayed" ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(param_1)s::INTEGER) AS ahead
WHERE ahead.due_time >= %(param_2)s::TIMESTAMP WITH TIME ZONE AND NOT (ahead.next_attempt >= %(param_3)s::TIMESTAMP WITH TIME ZONE AND ahead.due_time < %(param_3)s::TIMESTAMP WITH TIME ZONE)) AS first_due
-- {'current_setting_1': 'transaction_read_only', 'current_setting_2': 'on', 'param_1': 1000}

-- # status_behind
SELECT clock_timestamp() AS now, current_setting(%(current_setting_1)s::VARCHAR) = %(current_setting_2)s::VARCHAR AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT "my schema"."sales_delayed".due_time AS due_time, "my schema"."sales_delayed".next_attempt AS next_attempt
FROM "my schema"."sales_delayed"
WHERE ("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id) > (%(after_next_attempt)s::TIMESTAMP WITH TIME ZONE, %(after_message_id)s::VARCHAR COLLATE "C") ORDER BY "my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".message_id
 LIMIT %(param_1)s::INTEGER) AS ahead
WHERE ahead.due_time >= %(param_2)s::TIMESTAMP WITH TIME ZONE AND NOT (ahead.next_attempt >= %(param_3)s::TIMESTAMP WITH TIME ZONE AND ahead.due_time < %(param_3)s::TIMESTAMP WITH TIME ZONE)) AS first_due
-- {'current_setting_1': 'transaction_read_only', 'current_setting_2': 'on', 'param_1': 1000}

-- # there
SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = ANY (%(ids)s::VARCHAR[] COLLATE "C")

-- # times
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # unpark
UPDATE "my schema"."sales_delayed" SET next_attempt="my schema"."sales_delayed".due_time

-- # waits
SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C"

-- # insert
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) ON CONFLICT DO NOTHING

-- # insert_alone
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND set_config('lock_timeout', '5000ms', true) IS NOT NULL ON CONFLICT DO NOTHING

-- # insert_and_notify
WITH stored AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT %(new_message_id)s::VARCHAR COLLATE "C" AS anon_1, %(new_destination)s::VARCHAR COLLATE "C" AS anon_2, %(new_due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(new_next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(new_failure_count)s::INTEGER AS anon_5, %(new_headers)s::VARCHAR AS anon_6, %(new_properties)s::VARCHAR AS anon_7, %(new_body)s AS anon_8
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(new_message_id)s::VARCHAR COLLATE "C")) AND set_config('lock_timeout', '5000ms', true) IS NOT NULL ON CONFLICT DO NOTHING RETURNING "my schema"."sales_delayed".message_id)
 SELECT stored.message_id, pg_notify(%(channel)s, %(payload)s) AS pg_notify_1
FROM stored

-- # insert_enlisted
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
stored AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT %(new_message_id)s::VARCHAR COLLATE "C" AS anon_2, %(new_destination)s::VARCHAR COLLATE "C" AS anon_3, %(new_due_time)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(new_next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_5, %(new_failure_count)s::INTEGER AS anon_6, %(new_headers)s::VARCHAR AS anon_7, %(new_properties)s::VARCHAR AS anon_8, %(new_body)s AS anon_9
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(new_message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_10
FROM before) ON CONFLICT DO NOTHING RETURNING "my schema"."sales_delayed".message_id)
 SELECT stored.message_id, CASE WHEN (stored.message_id IS NOT NULL) THEN CAST(pg_notify(%(channel)s, %(payload)s) AS TEXT) ELSE NULL END AS anon_1, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN stored ON true

-- # insert with a latest delivery
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) ON CONFLICT DO NOTHING

-- # insert_alone with a latest delivery
INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND set_config('lock_timeout', '5000ms', true) IS NOT NULL ON CONFLICT DO NOTHING

-- # insert_and_notify with a latest delivery
WITH stored AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) SELECT %(new_message_id)s::VARCHAR COLLATE "C" AS anon_1, %(new_destination)s::VARCHAR COLLATE "C" AS anon_2, %(new_due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(new_next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(new_failure_count)s::INTEGER AS anon_5, %(new_headers)s::VARCHAR AS anon_6, %(new_properties)s::VARCHAR AS anon_7, %(new_body)s AS anon_8, %(new_not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(new_message_id)s::VARCHAR COLLATE "C")) AND set_config('lock_timeout', '5000ms', true) IS NOT NULL ON CONFLICT DO NOTHING RETURNING "my schema"."sales_delayed".message_id)
 SELECT stored.message_id, pg_notify(%(channel)s, %(payload)s) AS pg_notify_1
FROM stored

-- # insert_enlisted with a latest delivery
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
stored AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) SELECT %(new_message_id)s::VARCHAR COLLATE "C" AS anon_2, %(new_destination)s::VARCHAR COLLATE "C" AS anon_3, %(new_due_time)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(new_next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_5, %(new_failure_count)s::INTEGER AS anon_6, %(new_headers)s::VARCHAR AS anon_7, %(new_properties)s::VARCHAR AS anon_8, %(new_body)s AS anon_9, %(new_not_after)s::TIMESTAMP WITH TIME ZONE AS anon_10
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(new_message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_11
FROM before) ON CONFLICT DO NOTHING RETURNING "my schema"."sales_delayed".message_id)
 SELECT stored.message_id, CASE WHEN (stored.message_id IS NOT NULL) THEN CAST(pg_notify(%(channel)s, %(payload)s) AS TEXT) ELSE NULL END AS anon_1, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN stored ON true

-- # keyed: find
SELECT "my schema"."sales_delayed".message_id
FROM ONLY "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_key = %(key)s::VARCHAR COLLATE "C"

-- # keyed: lock
SELECT "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".destination, "my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt
FROM ONLY "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_key = %(key)s::VARCHAR COLLATE "C" FOR UPDATE

-- # keyed: reject
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
placed AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after, message_key, first_sent) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9, %(message_key)s::VARCHAR COLLATE "C" AS anon_10, %(first_sent)s::TIMESTAMP WITH TIME ZONE AS anon_11
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_12
FROM before) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_key = excluded.message_key WHERE "my schema"."sales_delayed".message_id != excluded.message_id RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".next_attempt)
 SELECT placed.message_id, placed.next_attempt, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN placed ON true

-- # keyed: keep
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
placed AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after, message_key, first_sent) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9, %(message_key)s::VARCHAR COLLATE "C" AS anon_10, %(first_sent)s::TIMESTAMP WITH TIME ZONE AS anon_11
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_12
FROM before) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET due_time = CASE WHEN ("my schema"."sales_delayed".due_time > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_2)s::TIMESTAMP WITH TIME ZONE END RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".next_attempt)
 SELECT placed.message_id, placed.next_attempt, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN placed ON true

-- # keyed: replace
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
placed AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after, message_key, first_sent) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9, %(message_key)s::VARCHAR COLLATE "C" AS anon_10, %(first_sent)s::TIMESTAMP WITH TIME ZONE AS anon_11
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_12
FROM before) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("my schema"."sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("my schema"."sales_delayed".due_time <= excluded.due_time AND least(excluded.due_time, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = excluded.due_time) THEN CASE WHEN ("my schema"."sales_delayed".due_time > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_2)s::TIMESTAMP WITH TIME ZONE END ELSE excluded.due_time END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, first_sent = excluded.first_sent, not_after = excluded.not_after RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".next_attempt)
 SELECT placed.message_id, placed.next_attempt, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN placed ON true

-- # keyed: replace, noted
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
replaced AS
(SELECT "my schema"."sales_delayed".message_id AS message_id, "my schema"."sales_delayed".message_key AS message_key, "my schema"."sales_delayed".load_number AS load_number, "my schema"."sales_delayed".destination AS destination, CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END AS due_time, "my schema"."sales_delayed".failure_count AS failure_count, sha256("my schema"."sales_delayed".body) AS body_hash, CASE WHEN ("my schema"."sales_delayed".failures_of = "my schema"."sales_delayed".message_id) THEN "my schema"."sales_delayed".failures END AS failures
FROM ONLY "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_key = %(message_key)s::VARCHAR COLLATE "C" AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_1
FROM before) FOR UPDATE),
placed AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after, message_key, first_sent) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_2, %(destination)s::VARCHAR COLLATE "C" AS anon_3, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_5, %(failure_count)s::INTEGER AS anon_6, %(headers)s::VARCHAR AS anon_7, %(properties)s::VARCHAR AS anon_8, %(body)s AS anon_9, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_10, %(message_key)s::VARCHAR COLLATE "C" AS anon_11, %(first_sent)s::TIMESTAMP WITH TIME ZONE AS anon_12
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_1
FROM before) AND (SELECT count(*) AS count_1
FROM replaced) >= %(param_3)s::INTEGER ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("my schema"."sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("my schema"."sales_delayed".due_time <= excluded.due_time AND least(excluded.due_time, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = excluded.due_time) THEN CASE WHEN ("my schema"."sales_delayed".due_time > %(param_4)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_5)s::TIMESTAMP WITH TIME ZONE END ELSE excluded.due_time END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, first_sent = excluded.first_sent, not_after = excluded.not_after WHERE EXISTS (SELECT *
FROM replaced) RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".next_attempt),
entries AS
(INSERT INTO "my schema"."sales_delayed_history" (message_id, message_key, load_number, destination, due_time, ended_at, attempts, ending, ended_by, body_hash, failures) SELECT leaving.message_id AS message_id, leaving.message_key AS message_key, leaving.load_number AS load_number, leaving.destination AS destination, leaving.due_time AS due_time, %(history_at)s::TIMESTAMP WITH TIME ZONE AS ended_at, leaving.failure_count + %(history_attempts)s::INTEGER AS attempts, CASE WHEN (%(history_ending)s::VARCHAR COLLATE "C" = %(param_1)s::VARCHAR COLLATE "C" AND leaving.due_time > %(history_at)s::TIMESTAMP WITH TIME ZONE) THEN %(param_2)s::VARCHAR COLLATE "C" ELSE %(history_ending)s::VARCHAR COLLATE "C" END AS ending, %(history_by)s::VARCHAR COLLATE "C" AS ended_by, leaving.body_hash AS body_hash, leaving.failures AS failures
FROM (SELECT replaced.message_id AS message_id, replaced.message_key AS message_key, replaced.load_number AS load_number, replaced.destination AS destination, replaced.due_time AS due_time, replaced.failure_count AS failure_count, replaced.body_hash AS body_hash, replaced.failures AS failures
FROM replaced JOIN placed ON true) AS leaving)
 SELECT placed.message_id, placed.next_attempt, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN placed ON true
-- {'param_1': 'delivered', 'param_2': 'handed-over', 'param_3': 0}

-- # keyed: debounce
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
placed AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after, message_key, first_sent) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9, %(message_key)s::VARCHAR COLLATE "C" AS anon_10, %(first_sent)s::TIMESTAMP WITH TIME ZONE AS anon_11
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_12
FROM before) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("my schema"."sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("my schema"."sales_delayed".due_time <= excluded.due_time AND least(excluded.due_time, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = excluded.due_time) THEN CASE WHEN ("my schema"."sales_delayed".due_time > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_2)s::TIMESTAMP WITH TIME ZONE END ELSE excluded.due_time END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, first_sent = coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent), not_after = excluded.not_after RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".next_attempt)
 SELECT placed.message_id, placed.next_attempt, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN placed ON true

-- # keyed: debounce, bounded
WITH before AS
(SELECT current_setting('lock_timeout') AS value),
placed AS
(INSERT INTO "my schema"."sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after, message_key, first_sent) SELECT %(message_id)s::VARCHAR COLLATE "C" AS anon_1, %(destination)s::VARCHAR COLLATE "C" AS anon_2, %(due_time)s::TIMESTAMP WITH TIME ZONE AS anon_3, %(next_attempt)s::TIMESTAMP WITH TIME ZONE AS anon_4, %(failure_count)s::INTEGER AS anon_5, %(headers)s::VARCHAR AS anon_6, %(properties)s::VARCHAR AS anon_7, %(body)s AS anon_8, %(not_after)s::TIMESTAMP WITH TIME ZONE AS anon_9, %(message_key)s::VARCHAR COLLATE "C" AS anon_10, %(first_sent)s::TIMESTAMP WITH TIME ZONE AS anon_11
WHERE NOT (EXISTS (SELECT *
FROM "my schema"."sales_delayed_shelves"
WHERE "my schema"."sales_delayed_shelves".message_id = %(message_id)s::VARCHAR COLLATE "C")) AND (SELECT set_config('lock_timeout', CASE WHEN (before.value = '0' OR CAST(before.value AS INTERVAL) > CAST('5000ms' AS INTERVAL)) THEN '5000ms' ELSE before.value END, true) IS NOT NULL AS anon_12
FROM before) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("my schema"."sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("my schema"."sales_delayed".due_time <= least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond') AND least(least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond'), "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond')) THEN CASE WHEN ("my schema"."sales_delayed".due_time > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN "my schema"."sales_delayed".due_time - INTERVAL '1 microsecond' ELSE %(param_2)s::TIMESTAMP WITH TIME ZONE END ELSE least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond') END ELSE least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond') END, next_attempt = least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond'), failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, first_sent = coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent), not_after = timezone(%(timezone_1)s::VARCHAR, timezone(%(timezone_2)s::VARCHAR, excluded.not_after) + least(timezone(%(timezone_3)s::VARCHAR, least(excluded.due_time, coalesce("my schema"."sales_delayed".first_sent, excluded.first_sent) + %(max_wait)s::BIGINT * INTERVAL '1 microsecond')) - timezone(%(timezone_4)s::VARCHAR, excluded.due_time), timezone(%(timezone_5)s::VARCHAR, %(param_3)s::TIMESTAMP WITH TIME ZONE) - timezone(%(timezone_6)s::VARCHAR, excluded.not_after))) RETURNING "my schema"."sales_delayed".message_id, "my schema"."sales_delayed".next_attempt)
 SELECT placed.message_id, placed.next_attempt, set_config('lock_timeout', before.value, true) AS set_config_1
FROM before LEFT OUTER JOIN placed ON true
-- {'timezone_1': 'UTC', 'timezone_2': 'UTC', 'timezone_3': 'UTC', 'timezone_4': 'UTC', 'timezone_5': 'UTC', 'timezone_6': 'UTC'}

-- # clock
SELECT clock_timestamp() AS clock_timestamp_1

-- # setup lock
SELECT set_config('statement_timeout', '0', true), ARRAY(SELECT set_config(name, '0', true) FROM (VALUES ('idle_session_timeout'), ('transaction_timeout')) AS newer (name) WHERE current_setting(name, true) IS NOT NULL)
;
SELECT pg_advisory_xact_lock(%(pg_advisory_xact_lock_2)s::BIGINT) AS pg_advisory_xact_lock_1
-- {'pg_advisory_xact_lock_2': 2036341403314824984}
;
(block)

-- # savepoint
(savepoint)
;
(block)

-- # cancel
WITH free AS
(SELECT "my schema"."sales_delayed".message_id AS message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C" FOR UPDATE SKIP LOCKED),
changed AS
(DELETE FROM "my schema"."sales_delayed" WHERE "my schema"."sales_delayed".message_id IN (SELECT free.message_id
FROM free) RETURNING NULL AS returned, "my schema"."sales_delayed".message_id)
 SELECT EXISTS (SELECT changed.message_id
FROM changed) AS done, EXISTS (SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C") AS there, (SELECT changed.returned
FROM changed) AS returned
-- {'id': 'm1'}

-- # reschedule
WITH free AS
(SELECT "my schema"."sales_delayed".message_id AS message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C" FOR UPDATE SKIP LOCKED),
changed AS
(UPDATE "my schema"."sales_delayed" SET not_after=timezone(%(timezone_1)s::VARCHAR, timezone(%(timezone_2)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END) + least(timezone(%(timezone_3)s::VARCHAR, %(new_due_time)s::TIMESTAMP WITH TIME ZONE) - timezone(%(timezone_4)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".due_time = "my schema"."sales_delayed".next_attempt) THEN "my schema"."sales_delayed".due_time WHEN (least("my schema"."sales_delayed".next_attempt, "my schema"."sales_delayed".due_time + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".next_attempt AND least("my schema"."sales_delayed".due_time, "my schema"."sales_delayed".next_attempt + 999 * INTERVAL '1 microsecond') = "my schema"."sales_delayed".due_time) THEN "my schema"."sales_delayed".next_attempt ELSE "my schema"."sales_delayed".due_time END), timezone(%(timezone_5)s::VARCHAR, %(param_1)s::TIMESTAMP WITH TIME ZONE) - timezone(%(timezone_6)s::VARCHAR, CASE WHEN ("my schema"."sales_delayed".not_after BETWEEN '0001-01-02T00:00:00+00:00' AND '9999-12-30T00:00:00+00:00') THEN "my schema"."sales_delayed".not_after ELSE NULL END))), due_time=%(new_due_time)s::TIMESTAMP WITH TIME ZONE, next_attempt=%(new_due_time)s::TIMESTAMP WITH TIME ZONE, failure_count=%(param_2)s::INTEGER WHERE "my schema"."sales_delayed".message_id IN (SELECT free.message_id
FROM free) RETURNING NULL AS returned, "my schema"."sales_delayed".message_id)
 SELECT EXISTS (SELECT changed.message_id
FROM changed) AS done, EXISTS (SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = %(id)s::VARCHAR COLLATE "C") AS there, (SELECT changed.returned
FROM changed) AS returned
-- {'timezone_1': 'UTC', 'timezone_2': 'UTC', 'timezone_3': 'UTC', 'timezone_4': 'UTC', 'timezone_5': 'UTC', 'timezone_6': 'UTC', 'param_2': 0, 'id': 'm1'}

-- # notify
SELECT pg_notify(%(pg_notify_2)s::VARCHAR, %(pg_notify_3)s::VARCHAR) AS pg_notify_1
-- {'pg_notify_2': 'channel', 'pg_notify_3': 'payload'}

-- # storage options
ALTER TABLE {table} ADD CHECK (due_time BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00' AND next_attempt BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00')
;
ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000)

-- # among
SELECT "my schema"."sales_delayed".message_id
FROM "my schema"."sales_delayed"
WHERE "my schema"."sales_delayed".message_id = ANY (%(ids)s::VARCHAR[] COLLATE "C")
