-- # registry
CREATE TABLE "sales_delayed_loads" (
	load_id TEXT NOT NULL,
	is_stream INTEGER NOT NULL,
	batch BIGINT,
	token TEXT,
	host TEXT NOT NULL,
	pid INTEGER NOT NULL,
	place TEXT,
	process_started BIGINT,
	began DATETIME NOT NULL,
	heartbeat DATETIME NOT NULL,
	lease_until DATETIME NOT NULL,
	finished_at DATETIME,
	stored BIGINT,
	skipped BIGINT,
	messages BIGINT,
	rejected BIGINT,
	first_due DATETIME,
	last_due DATETIME,
	cancelled_at DATETIME,
	cancelled_by TEXT,
	number INTEGER,
	PRIMARY KEY (load_id)
)
;
CREATE UNIQUE INDEX sales_delayed_loads_number ON "sales_delayed_loads" (number)

-- # staging
CREATE TABLE "sales_delayed_load_0123456789abcdef0123" (
	attempt BIGINT NOT NULL,
	message_id TEXT NOT NULL,
	destination TEXT NOT NULL,
	due_time DATETIME NOT NULL,
	next_attempt DATETIME NOT NULL,
	failure_count INTEGER NOT NULL,
	headers TEXT,
	properties TEXT,
	body BLOB NOT NULL,
	message_key TEXT,
	not_after DATETIME
)

-- # begin
BEGIN IMMEDIATE

-- # take time


-- # create
(create)

-- # drop
PRAGMA busy_timeout
;
PRAGMA busy_timeout = 2000
;
DROP TABLE IF EXISTS "a:b"
;
PRAGMA busy_timeout = 1

-- # empty
PRAGMA busy_timeout
;
PRAGMA busy_timeout = 2000
;
DELETE FROM "a:b"
;
PRAGMA busy_timeout = 1

-- # promoting, duplicates: error
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT "sales_delayed_load_0123456789abcdef0123".message_id, "sales_delayed_load_0123456789abcdef0123".destination, "sales_delayed_load_0123456789abcdef0123".due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count, "sales_delayed_load_0123456789abcdef0123".headers, "sales_delayed_load_0123456789abcdef0123".properties, "sales_delayed_load_0123456789abcdef0123".body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])

-- # promoting, duplicates: ignore
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT "sales_delayed_load_0123456789abcdef0123".message_id, "sales_delayed_load_0123456789abcdef0123".destination, "sales_delayed_load_0123456789abcdef0123".due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count, "sales_delayed_load_0123456789abcdef0123".headers, "sales_delayed_load_0123456789abcdef0123".properties, "sales_delayed_load_0123456789abcdef0123".body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1]) ON CONFLICT DO NOTHING

-- # promoting, duplicates: replace
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT "sales_delayed_load_0123456789abcdef0123".message_id, "sales_delayed_load_0123456789abcdef0123".destination, "sales_delayed_load_0123456789abcdef0123".due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count, "sales_delayed_load_0123456789abcdef0123".headers, "sales_delayed_load_0123456789abcdef0123".properties, "sales_delayed_load_0123456789abcdef0123".body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1]) ON CONFLICT (message_id) DO UPDATE SET destination = excluded.destination, due_time = CASE WHEN ("sales_delayed".due_time <= excluded.due_time AND min(excluded.due_time, coalesce(strftime(?, (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) - ?) + (CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999 + ?) / ?, ?) || printf(?, (CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999 + ?) % ?), "sales_delayed".due_time)) = excluded.due_time) THEN CASE WHEN ("sales_delayed".due_time > ?) THEN CASE WHEN (CAST("sales_delayed".due_time AS TEXT) LIKE ?) THEN coalesce(CASE WHEN (substr("sales_delayed".due_time, ?, ?) > ?) THEN substr("sales_delayed".due_time, ?, ?) || printf(?, CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) - ?) ELSE strftime(?, substr("sales_delayed".due_time, ?, ?), ?) || ? END, "sales_delayed".due_time) ELSE "sales_delayed".due_time END ELSE ? END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, claimed_by = ?, claimed_until = ?, message_key = ?, first_sent = ?, failures = ?, failures_of = ?
-- {'strftime_1': '%Y-%m-%d %H:%M:%S', 'strftime_2': '%s', 'substr_1': 1, 'substr_2': 19, 'param_1': 1000000000000, 'substr_3': 21, 'substr_4': 6, '999_1': 1000000000000000000, 'param_2': 1000000, 'strftime_3': 'unixepoch', 'printf_1': '.%06d', 'param_3': 1000000, 'param_5': '____-__-__ __:__:__.______', 'substr_5': 21, 'substr_6': 6, 'substr_7': '000000', 'substr_8': 1, 'substr_9': 20, 'printf_2': '%06d', 'param_6': 1, 'strftime_4': '%Y-%m-%d %H:%M:%S', 'substr_10': 1, 'substr_11': 19, 'strftime_5': '-1 second', 'strftime_6': '.999999'}

-- # claimed
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".claimed_by IS NOT NULL AND "sales_delayed".message_id IN (SELECT staged.message_id
FROM (SELECT "sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "sales_delayed_load_0123456789abcdef0123".destination AS destination, "sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "sales_delayed_load_0123456789abcdef0123".headers AS headers, "sales_delayed_load_0123456789abcdef0123".properties AS properties, "sales_delayed_load_0123456789abcdef0123".body AS body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged) AND "sales_delayed".claimed_until > ?
 LIMIT ? OFFSET ?
-- {'param_1': 1, 'param_2': 0}

-- # there already
SELECT DISTINCT staged.message_id
FROM (SELECT "sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "sales_delayed_load_0123456789abcdef0123".destination AS destination, "sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "sales_delayed_load_0123456789abcdef0123".headers AS headers, "sales_delayed_load_0123456789abcdef0123".properties AS properties, "sales_delayed_load_0123456789abcdef0123".body AS body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged JOIN "sales_delayed" ON "sales_delayed".message_id = staged.message_id
WHERE staged.message_id > ? ORDER BY staged.message_id
 LIMIT ? OFFSET ?
-- {'message_id_1': 'm', 'param_1': 10, 'param_2': 0}

-- # distinct ids
SELECT count(DISTINCT staged.message_id) AS count_1
FROM (SELECT "sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "sales_delayed_load_0123456789abcdef0123".destination AS destination, "sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "sales_delayed_load_0123456789abcdef0123".headers AS headers, "sales_delayed_load_0123456789abcdef0123".properties AS properties, "sales_delayed_load_0123456789abcdef0123".body AS body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged

-- # twice
SELECT staged.message_id
FROM (SELECT "sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "sales_delayed_load_0123456789abcdef0123".destination AS destination, "sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "sales_delayed_load_0123456789abcdef0123".headers AS headers, "sales_delayed_load_0123456789abcdef0123".properties AS properties, "sales_delayed_load_0123456789abcdef0123".body AS body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged GROUP BY staged.message_id
HAVING count(*) > ? ORDER BY staged.message_id
 LIMIT ? OFFSET ?
-- {'count_1': 1, 'param_1': 10, 'param_2': 0}

-- # waiting already
SELECT staged.message_id
FROM (SELECT "sales_delayed_load_0123456789abcdef0123".message_id AS message_id, "sales_delayed_load_0123456789abcdef0123".destination AS destination, "sales_delayed_load_0123456789abcdef0123".due_time AS due_time, "sales_delayed_load_0123456789abcdef0123".next_attempt AS next_attempt, "sales_delayed_load_0123456789abcdef0123".failure_count AS failure_count, "sales_delayed_load_0123456789abcdef0123".headers AS headers, "sales_delayed_load_0123456789abcdef0123".properties AS properties, "sales_delayed_load_0123456789abcdef0123".body AS body
FROM "sales_delayed_load_0123456789abcdef0123"
WHERE "sales_delayed_load_0123456789abcdef0123".attempt IN (__[POSTCOMPILE_attempt_1])) AS staged JOIN "sales_delayed" ON "sales_delayed".message_id = staged.message_id ORDER BY staged.message_id
 LIMIT ? OFFSET ?
-- {'param_1': 10, 'param_2': 0}

-- # registry insert
INSERT INTO "sales_delayed_loads" (load_id, is_stream, batch, token, host, pid, place, process_started, began, heartbeat, lease_until, finished_at, stored, skipped, messages, rejected, first_due, last_due, cancelled_at, cancelled_by, number) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
