-- # table
CREATE TABLE "sales_delayed" (
	message_id TEXT NOT NULL,
	destination TEXT NOT NULL,
	due_time DATETIME NOT NULL,
	next_attempt DATETIME NOT NULL,
	failure_count INTEGER DEFAULT '0' NOT NULL,
	headers TEXT,
	properties TEXT,
	body BLOB NOT NULL,
	claimed_by TEXT,
	claimed_until DATETIME,
	message_key TEXT,
	first_sent DATETIME,
	failures TEXT,
	failures_of TEXT,
	not_after DATETIME,
	load_number INTEGER,
	PRIMARY KEY (message_id)
)
;
CREATE INDEX sales_delayed_claims ON "sales_delayed" (claimed_until) WHERE claimed_by IS NOT NULL
;
CREATE INDEX sales_delayed_due ON "sales_delayed" (next_attempt, message_id)
;
CREATE INDEX sales_delayed_failing ON "sales_delayed" (next_attempt, message_id) WHERE failure_count > 0
;
CREATE UNIQUE INDEX sales_delayed_keys ON "sales_delayed" (message_key) WHERE message_key IS NOT NULL
;
CREATE INDEX sales_delayed_load ON "sales_delayed" (load_number, message_id) WHERE load_number IS NOT NULL

-- # buckets
SELECT numbered.number, count(*) AS messages
FROM (SELECT (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) - (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) % ? + ?) % ?) / ? AS number, "sales_delayed".destination AS destination
FROM "sales_delayed") AS numbered GROUP BY numbered.number ORDER BY numbered.number
-- {'strftime_1': '%s', 'substr_1': 1, 'substr_2': 19}

-- # claim_due
UPDATE "sales_delayed" SET claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id IN (SELECT summed.message_id
FROM (SELECT sized.next_attempt AS next_attempt, sized.message_id AS message_id, sized.size AS size, sum(sized.size) OVER (ORDER BY sized.next_attempt, sized.message_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total, row_number() OVER (ORDER BY sized.next_attempt, sized.message_id) AS number
FROM (SELECT "sales_delayed".next_attempt AS next_attempt, "sales_delayed".message_id AS message_id, length("sales_delayed".body) AS size
FROM "sales_delayed"
WHERE "sales_delayed".next_attempt <= ? AND ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS sized) AS summed
WHERE summed.total <= ? OR summed.number = ? ORDER BY summed.next_attempt, summed.message_id) RETURNING message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after AS not_after
-- {'param_1': 0, 'number_1': 1}

-- # claim_due_behind
UPDATE "sales_delayed" SET claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id IN (SELECT summed.message_id
FROM (SELECT sized.next_attempt AS next_attempt, sized.message_id AS message_id, sized.size AS size, sum(sized.size) OVER (ORDER BY sized.next_attempt, sized.message_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total, row_number() OVER (ORDER BY sized.next_attempt, sized.message_id) AS number
FROM (SELECT "sales_delayed".next_attempt AS next_attempt, "sales_delayed".message_id AS message_id, length("sales_delayed".body) AS size
FROM "sales_delayed"
WHERE "sales_delayed".next_attempt <= ? AND ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) AND ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS sized) AS summed
WHERE summed.total <= ? OR summed.number = ? ORDER BY summed.next_attempt, summed.message_id) RETURNING message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after AS not_after
-- {'param_1': 0, 'number_1': 1}

-- # claimed
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND "sales_delayed".claimed_by = ?

-- # count
SELECT count(*) AS count_1
FROM "sales_delayed"

-- # count_failure
UPDATE "sales_delayed" SET next_attempt=?, failure_count=("sales_delayed".failure_count + ?), claimed_by=?, claimed_until=?, failures=substr(CASE WHEN ("sales_delayed".failures_of = "sales_delayed".message_id) THEN "sales_delayed".failures ELSE ? END || ?, -8000), failures_of="sales_delayed".message_id WHERE "sales_delayed".message_id = ? AND "sales_delayed".claimed_by = ?
-- {'failure_count_1': 1, 'param_1': ''}

-- # count_failure_stored
UPDATE "sales_delayed" SET next_attempt=?, failure_count=("sales_delayed".failure_count + ?), claimed_by=?, claimed_until=?, failures=substr(CASE WHEN ("sales_delayed".failures_of = "sales_delayed".message_id) THEN "sales_delayed".failures ELSE ? END || ?, -8000), failures_of="sales_delayed".message_id WHERE (typeof("sales_delayed".message_id) || hex("sales_delayed".message_id)) = ? AND "sales_delayed".claimed_by = ?
-- {'failure_count_1': 1, 'param_1': ''}

-- # count_some
SELECT count(*) AS count_1
FROM (SELECT ? AS anon_1
FROM "sales_delayed"
 LIMIT ? OFFSET ?) AS some
-- {'param_1': 1, 'param_2': 0}

-- # first
SELECT "sales_delayed".next_attempt
FROM "sales_delayed"
WHERE "sales_delayed".next_attempt <= ? AND "sales_delayed".claimed_by IS NULL ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_2': 1, 'param_3': 0}

-- # first_behind
SELECT "sales_delayed".next_attempt
FROM "sales_delayed"
WHERE "sales_delayed".next_attempt <= ? AND ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) AND "sales_delayed".claimed_by IS NULL ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_2': 1, 'param_3': 0}

-- # first_lease_end
SELECT min(max("sales_delayed".claimed_until, "sales_delayed".next_attempt)) AS min_1
FROM "sales_delayed"
WHERE "sales_delayed".claimed_by IS NOT NULL

-- # get
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body, "sales_delayed".not_after AS not_after, "sales_delayed".message_key, "sales_delayed".failures, "sales_delayed".failures_of
FROM "sales_delayed"
WHERE "sales_delayed".message_id = ?

-- # increment
UPDATE "sales_delayed" SET next_attempt=?, failure_count=("sales_delayed".failure_count + ?), claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id = ? AND "sales_delayed".claimed_by = ?
-- {'failure_count_1': 1}

-- # increment_stored
UPDATE "sales_delayed" SET next_attempt=?, failure_count=("sales_delayed".failure_count + ?), claimed_by=?, claimed_until=? WHERE (typeof("sales_delayed".message_id) || hex("sales_delayed".message_id)) = ? AND "sales_delayed".claimed_by = ?
-- {'failure_count_1': 1}

-- # mark
UPDATE "sales_delayed" SET due_time=CASE WHEN ("sales_delayed".due_time > ?) THEN CASE WHEN (CAST("sales_delayed".due_time AS TEXT) LIKE ?) THEN coalesce(CASE WHEN (substr("sales_delayed".due_time, ?, ?) > ?) THEN substr("sales_delayed".due_time, ?, ?) || printf(?, CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) - ?) ELSE strftime(?, substr("sales_delayed".due_time, ?, ?), ?) || ? END, "sales_delayed".due_time) ELSE "sales_delayed".due_time END ELSE ? END, claimed_by=?, claimed_until=?
-- {'param_2': '____-__-__ __:__:__.______', 'substr_1': 21, 'substr_2': 6, 'substr_3': '000000', 'substr_4': 1, 'substr_5': 20, 'printf_1': '%06d', 'param_3': 1, 'strftime_1': '%Y-%m-%d %H:%M:%S', 'substr_6': 1, 'substr_7': 19, 'strftime_2': '-1 second', 'strftime_3': '.999999'}

-- # page
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body, "sales_delayed".not_after AS not_after, "sales_delayed".message_key, "sales_delayed".failures, "sales_delayed".failures_of
FROM "sales_delayed" ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_1': 0}

-- # page_behind
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body, "sales_delayed".not_after AS not_after, "sales_delayed".message_key, "sales_delayed".failures, "sales_delayed".failures_of
FROM "sales_delayed"
WHERE ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_1': 0}

-- # park
UPDATE "sales_delayed" SET next_attempt=?, claimed_by=?, claimed_until=?

-- # park_claimed
UPDATE "sales_delayed" SET next_attempt=?, claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND "sales_delayed".claimed_by = ?

-- # postpone
UPDATE "sales_delayed" SET next_attempt=?, claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id = ? AND "sales_delayed".claimed_by = ?

-- # postpone_stored
UPDATE "sales_delayed" SET next_attempt=?, claimed_by=?, claimed_until=? WHERE (typeof("sales_delayed".message_id) || hex("sales_delayed".message_id)) = ? AND "sales_delayed".claimed_by = ?

-- # release
UPDATE "sales_delayed" SET claimed_by=?, claimed_until=? WHERE "sales_delayed".claimed_by = ?

-- # remove_many
DELETE FROM "sales_delayed" WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND "sales_delayed".claimed_by = ?

-- # remove_stored
DELETE FROM "sales_delayed" WHERE (typeof("sales_delayed".message_id) || hex("sales_delayed".message_id)) = ? AND "sales_delayed".claimed_by = ?

-- # show
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body, "sales_delayed".not_after AS not_after, "sales_delayed".message_key, "sales_delayed".failures, "sales_delayed".failures_of
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1)

-- # shown
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body, "sales_delayed".not_after AS not_after, "sales_delayed".message_key, "sales_delayed".failures, "sales_delayed".failures_of
FROM "sales_delayed"

-- # status
SELECT NULL AS now, 0 AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT "sales_delayed".due_time AS due_time, "sales_delayed".next_attempt AS next_attempt
FROM "sales_delayed" ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS ahead
WHERE ahead.due_time >= ? AND NOT (ahead.next_attempt >= ? AND ahead.due_time < ?)) AS first_due
-- {'param_1': 1000, 'param_2': 0}

-- # status_behind
SELECT NULL AS now, 0 AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT "sales_delayed".due_time AS due_time, "sales_delayed".next_attempt AS next_attempt
FROM "sales_delayed"
WHERE ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS ahead
WHERE ahead.due_time >= ? AND NOT (ahead.next_attempt >= ? AND ahead.due_time < ?)) AS first_due
-- {'param_1': 1000, 'param_2': 0}

-- # there
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1)

-- # unpark
UPDATE "sales_delayed" SET next_attempt="sales_delayed".due_time, claimed_by=?, claimed_until=?

-- # waits
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id = ?

-- # insert
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- # insert_alone
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- # insert with a latest delivery
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- # insert_alone with a latest delivery
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- # keyed: find
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_key = ?

-- # keyed: lock
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt
FROM "sales_delayed"
WHERE "sales_delayed".message_key = ?

-- # keyed: reject
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, message_key, first_sent, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET claimed_by = ?, claimed_until = ?, message_key = excluded.message_key WHERE ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?) AND "sales_delayed".message_id != excluded.message_id RETURNING message_id, next_attempt

-- # keyed: keep
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, message_key, first_sent, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET due_time = CASE WHEN ("sales_delayed".due_time > ?) THEN CASE WHEN (CAST("sales_delayed".due_time AS TEXT) LIKE ?) THEN coalesce(CASE WHEN (substr("sales_delayed".due_time, ?, ?) > ?) THEN substr("sales_delayed".due_time, ?, ?) || printf(?, CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) - ?) ELSE strftime(?, substr("sales_delayed".due_time, ?, ?), ?) || ? END, "sales_delayed".due_time) ELSE "sales_delayed".due_time END ELSE ? END, claimed_by = ?, claimed_until = ? WHERE "sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ? RETURNING message_id, next_attempt
-- {'param_2': '____-__-__ __:__:__.______', 'substr_1': 21, 'substr_2': 6, 'substr_3': '000000', 'substr_4': 1, 'substr_5': 20, 'printf_1': '%06d', 'param_3': 1, 'strftime_1': '%Y-%m-%d %H:%M:%S', 'substr_6': 1, 'substr_7': 19, 'strftime_2': '-1 second', 'strftime_3': '.999999'}

-- # keyed: replace
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, message_key, first_sent, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("sales_delayed".due_time <= excluded.due_time AND min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) % 1000000 + 1000000) % 1000000))) = excluded.due_time) THEN CASE WHEN ("sales_delayed".due_time > ?) THEN CASE WHEN (CAST("sales_delayed".due_time AS TEXT) LIKE ?) THEN coalesce(CASE WHEN (substr("sales_delayed".due_time, ?, ?) > ?) THEN substr("sales_delayed".due_time, ?, ?) || printf(?, CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) - ?) ELSE strftime(?, substr("sales_delayed".due_time, ?, ?), ?) || ? END, "sales_delayed".due_time) ELSE "sales_delayed".due_time END ELSE ? END ELSE excluded.due_time END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, claimed_by = ?, claimed_until = ?, first_sent = excluded.first_sent, not_after = excluded.not_after WHERE "sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ? RETURNING message_id, next_attempt
-- {'strftime_1': '%Y-%m-%d %H:%M:%S', 'strftime_2': '%s', 'substr_1': 1, 'substr_2': 19, 'param_1': 1000000, 'substr_3': 21, 'substr_4': 6, 'param_2': 1000000, 'strftime_3': 'unixepoch', 'printf_1': '.%06d', 'param_4': '____-__-__ __:__:__.______', 'substr_5': 21, 'substr_6': 6, 'substr_7': '000000', 'substr_8': 1, 'substr_9': 20, 'printf_2': '%06d', 'param_5': 1, 'strftime_4': '%Y-%m-%d %H:%M:%S', 'substr_10': 1, 'substr_11': 19, 'strftime_5': '-1 second', 'strftime_6': '.999999'}

-- # keyed: debounce
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, message_key, first_sent, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("sales_delayed".due_time <= excluded.due_time AND min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) % 1000000 + 1000000) % 1000000))) = excluded.due_time) THEN CASE WHEN ("sales_delayed".due_time > ?) THEN CASE WHEN (CAST("sales_delayed".due_time AS TEXT) LIKE ?) THEN coalesce(CASE WHEN (substr("sales_delayed".due_time, ?, ?) > ?) THEN substr("sales_delayed".due_time, ?, ?) || printf(?, CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) - ?) ELSE strftime(?, substr("sales_delayed".due_time, ?, ?), ?) || ? END, "sales_delayed".due_time) ELSE "sales_delayed".due_time END ELSE ? END ELSE excluded.due_time END ELSE excluded.due_time END, next_attempt = excluded.next_attempt, failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, claimed_by = ?, claimed_until = ?, first_sent = coalesce("sales_delayed".first_sent, excluded.first_sent), not_after = excluded.not_after WHERE "sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ? RETURNING message_id, next_attempt
-- {'strftime_1': '%Y-%m-%d %H:%M:%S', 'strftime_2': '%s', 'substr_1': 1, 'substr_2': 19, 'param_1': 1000000, 'substr_3': 21, 'substr_4': 6, 'param_2': 1000000, 'strftime_3': 'unixepoch', 'printf_1': '.%06d', 'param_4': '____-__-__ __:__:__.______', 'substr_5': 21, 'substr_6': 6, 'substr_7': '000000', 'substr_8': 1, 'substr_9': 20, 'printf_2': '%06d', 'param_5': 1, 'strftime_4': '%Y-%m-%d %H:%M:%S', 'substr_10': 1, 'substr_11': 19, 'strftime_5': '-1 second', 'strftime_6': '.999999'}

-- # keyed: debounce, bounded
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, message_key, first_sent, not_after) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_key) WHERE message_key IS NOT NULL DO UPDATE SET message_id = excluded.message_id, destination = excluded.destination, due_time = CASE WHEN ("sales_delayed".message_id = excluded.message_id) THEN CASE WHEN ("sales_delayed".due_time <= min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))) AND min(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), strftime(?, ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) - ((CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) + 999) % 1000000 + 1000000) % 1000000))) = min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000)))) THEN CASE WHEN ("sales_delayed".due_time > ?) THEN CASE WHEN (CAST("sales_delayed".due_time AS TEXT) LIKE ?) THEN coalesce(CASE WHEN (substr("sales_delayed".due_time, ?, ?) > ?) THEN substr("sales_delayed".due_time, ?, ?) || printf(?, CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER) - ?) ELSE strftime(?, substr("sales_delayed".due_time, ?, ?), ?) || ? END, "sales_delayed".due_time) ELSE "sales_delayed".due_time END ELSE ? END ELSE min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))) END ELSE min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))) END, next_attempt = min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), failure_count = excluded.failure_count, headers = excluded.headers, properties = excluded.properties, body = excluded.body, claimed_by = ?, claimed_until = ?, first_sent = coalesce("sales_delayed".first_sent, excluded.first_sent), not_after = min(strftime(?, ((CAST(strftime(?, substr(excluded.not_after, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?)) AS INTEGER) * ? + CAST(substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?) AS INTEGER)) - (CAST(strftime(?, substr(excluded.due_time, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.due_time, ?, ?) AS INTEGER)))) - ((CAST(strftime(?, substr(excluded.not_after, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?)) AS INTEGER) * ? + CAST(substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?) AS INTEGER)) - (CAST(strftime(?, substr(excluded.due_time, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.due_time, ?, ?) AS INTEGER)))) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(excluded.not_after, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?)) AS INTEGER) * ? + CAST(substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?) AS INTEGER)) - (CAST(strftime(?, substr(excluded.due_time, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.due_time, ?, ?) AS INTEGER)))) - ((CAST(strftime(?, substr(excluded.not_after, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?)) AS INTEGER) * ? + CAST(substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?) AS INTEGER)) - (CAST(strftime(?, substr(excluded.due_time, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.due_time, ?, ?) AS INTEGER)))) - ((CAST(strftime(?, substr(excluded.not_after, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?)) AS INTEGER) * ? + CAST(substr(min(excluded.due_time, strftime(?, ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) - ((CAST(strftime(?, substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?)) AS INTEGER) * ? + CAST(substr(coalesce("sales_delayed".first_sent, excluded.first_sent), ?, ?) AS INTEGER) + ?) % 1000000 + 1000000) % 1000000))), ?, ?) AS INTEGER)) - (CAST(strftime(?, substr(excluded.due_time, ?, ?)) AS INTEGER) * ? + CAST(substr(excluded.due_time, ?, ?) AS INTEGER)))) % 1000000 + 1000000) % 1000000)), ?) WHERE "sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ? RETURNING message_id, next_attempt
-- {'strftime_1': '%Y-%m-%d %H:%M:%S', 'strftime_2': '%s', 'substr_1': 1, 'substr_2': 19, 'param_1': 1000000, 'substr_3': 21, 'substr_4': 6, 'param_2': 1000000, 'strftime_3': 'unixepoch', 'printf_1': '.%06d', 'strftime_4': '%Y-%m-%d %H:%M:%S', 'strftime_5': '%s', 'substr_5': 1, 'substr_6': 19, 'param_3': 1000000, 'substr_7': 21, 'substr_8': 6, 'param_4': 1000000, 'strftime_6': 'unixepoch', 'printf_2': '.%06d', 'param_6': '____-__-__ __:__:__.______', 'substr_9': 21, 'substr_10': 6, 'substr_11': '000000', 'substr_12': 1, 'substr_13': 20, 'printf_3': '%06d', 'param_7': 1, 'strftime_7': '%Y-%m-%d %H:%M:%S', 'substr_14': 1, 'substr_15': 19, 'strftime_8': '-1 second', 'strftime_9': '.999999', 'strftime_10': '%Y-%m-%d %H:%M:%S', 'strftime_11': '%s', 'substr_16': 1, 'substr_17': 19, 'param_11': 1000000, 'substr_18': 21, 'substr_19': 6, 'strftime_12': '%s', 'substr_20': 1, 'substr_21': 19, 'param_12': 1000000, 'substr_22': 21, 'substr_23': 6, 'strftime_13': '%s', 'substr_24': 1, 'substr_25': 19, 'param_13': 1000000, 'substr_26': 21, 'substr_27': 6, 'param_14': 1000000, 'strftime_14': 'unixepoch', 'printf_4': '.%06d'}

-- # clock
this computer's

-- # setup lock
BEGIN IMMEDIATE
;
(block)

-- # savepoint
BEGIN
;
(savepoint)
;
(block)

-- # cancel
DELETE FROM "sales_delayed" WHERE "sales_delayed".message_id = ? AND ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?)
-- {'id': 'm1'}

-- # reschedule
UPDATE "sales_delayed" SET not_after=min(strftime(?, ((CAST(strftime(?, substr("sales_delayed".not_after, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(?, ?, ?)) AS INTEGER) * ? + CAST(substr(?, ?, ?) AS INTEGER)) - (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER)))) - ((CAST(strftime(?, substr("sales_delayed".not_after, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(?, ?, ?)) AS INTEGER) * ? + CAST(substr(?, ?, ?) AS INTEGER)) - (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER)))) % 1000000 + 1000000) % 1000000) / ?, ?) || printf(?, (CAST(strftime(?, substr("sales_delayed".not_after, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(?, ?, ?)) AS INTEGER) * ? + CAST(substr(?, ?, ?) AS INTEGER)) - (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER)))) - ((CAST(strftime(?, substr("sales_delayed".not_after, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(?, ?, ?)) AS INTEGER) * ? + CAST(substr(?, ?, ?) AS INTEGER)) - (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER)))) - ((CAST(strftime(?, substr("sales_delayed".not_after, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".not_after, ?, ?) AS INTEGER) + ((CAST(strftime(?, substr(?, ?, ?)) AS INTEGER) * ? + CAST(substr(?, ?, ?) AS INTEGER)) - (CAST(strftime(?, substr("sales_delayed".due_time, ?, ?)) AS INTEGER) * ? + CAST(substr("sales_delayed".due_time, ?, ?) AS INTEGER)))) % 1000000 + 1000000) % 1000000)), ?), due_time=?, next_attempt=?, failure_count=?, claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id = ? AND ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?)
-- {'strftime_1': '%Y-%m-%d %H:%M:%S', 'strftime_2': '%s', 'substr_1': 1, 'substr_2': 19, 'param_1': 1000000, 'substr_3': 21, 'substr_4': 6, 'strftime_3': '%s', 'substr_5': 1, 'substr_6': 19, 'param_2': 1000000, 'substr_7': 21, 'substr_8': 6, 'strftime_4': '%s', 'substr_9': 1, 'substr_10': 19, 'param_3': 1000000, 'substr_11': 21, 'substr_12': 6, 'param_4': 1000000, 'strftime_5': 'unixepoch', 'printf_1': '.%06d', 'failure_count': 0, 'id': 'm1'}

-- # notify


-- # storage options


-- # among
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1)
