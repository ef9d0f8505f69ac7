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
	PRIMARY KEY (message_id)
)
;
CREATE INDEX sales_delayed_claims ON "sales_delayed" (claimed_until) WHERE claimed_by IS NOT NULL
;
CREATE INDEX sales_delayed_due ON "sales_delayed" (next_attempt, message_id)

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
WHERE summed.total <= ? OR summed.number = ? ORDER BY summed.next_attempt, summed.message_id) RETURNING message_id, destination, due_time, next_attempt, failure_count, headers, properties, body
-- {'param_1': 0, 'number_1': 1}

-- # claim_due_behind
UPDATE "sales_delayed" SET claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id IN (SELECT summed.message_id
FROM (SELECT sized.next_attempt AS next_attempt, sized.message_id AS message_id, sized.size AS size, sum(sized.size) OVER (ORDER BY sized.next_attempt, sized.message_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total, row_number() OVER (ORDER BY sized.next_attempt, sized.message_id) AS number
FROM (SELECT "sales_delayed".next_attempt AS next_attempt, "sales_delayed".message_id AS message_id, length("sales_delayed".body) AS size
FROM "sales_delayed"
WHERE "sales_delayed".next_attempt <= ? AND ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) AND ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS sized) AS summed
WHERE summed.total <= ? OR summed.number = ? ORDER BY summed.next_attempt, summed.message_id) RETURNING message_id, destination, due_time, next_attempt, failure_count, headers, properties, body
-- {'param_1': 0, 'number_1': 1}

-- # count
SELECT count(*) AS count_1
FROM "sales_delayed"

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
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body
FROM "sales_delayed"
WHERE "sales_delayed".message_id = ?

-- # increment
UPDATE "sales_delayed" SET next_attempt=?, failure_count=("sales_delayed".failure_count + ?), claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id = ? AND "sales_delayed".claimed_by = ?
-- {'failure_count_1': 1}

-- # increment_stored
UPDATE "sales_delayed" SET next_attempt=?, failure_count=("sales_delayed".failure_count + ?), claimed_by=?, claimed_until=? WHERE (typeof("sales_delayed".message_id) || hex("sales_delayed".message_id)) = ? AND "sales_delayed".claimed_by = ?
-- {'failure_count_1': 1}

-- # insert
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, claimed_by, claimed_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- # insert_alone
INSERT INTO "sales_delayed" (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, claimed_by, claimed_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- # page
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body
FROM "sales_delayed" ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_1': 0}

-- # page_behind
SELECT "sales_delayed".message_id, "sales_delayed".destination, "sales_delayed".due_time, "sales_delayed".next_attempt, "sales_delayed".failure_count, "sales_delayed".headers, "sales_delayed".properties, "sales_delayed".body
FROM "sales_delayed"
WHERE ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?
-- {'param_1': 0}

-- # release
UPDATE "sales_delayed" SET claimed_by=?, claimed_until=? WHERE "sales_delayed".claimed_by = ?

-- # remove_many
DELETE FROM "sales_delayed" WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND "sales_delayed".claimed_by = ?

-- # remove_stored
DELETE FROM "sales_delayed" WHERE (typeof("sales_delayed".message_id) || hex("sales_delayed".message_id)) = ? AND "sales_delayed".claimed_by = ?

-- # shelves


-- # status
SELECT NULL AS now, 0 AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT "sales_delayed".due_time AS due_time
FROM "sales_delayed" ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS ahead
WHERE ahead.due_time >= ?) AS first_due
-- {'param_1': 1000, 'param_2': 0}

-- # status_behind
SELECT NULL AS now, 0 AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT "sales_delayed".due_time AS due_time
FROM "sales_delayed"
WHERE ("sales_delayed".next_attempt, "sales_delayed".message_id) > (?, ?) ORDER BY "sales_delayed".next_attempt, "sales_delayed".message_id
 LIMIT ? OFFSET ?) AS ahead
WHERE ahead.due_time >= ?) AS first_due
-- {'param_1': 1000, 'param_2': 0}

-- # waits
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id = ?

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
UPDATE "sales_delayed" SET due_time=?, next_attempt=?, failure_count=?, claimed_by=?, claimed_until=? WHERE "sales_delayed".message_id = ? AND ("sales_delayed".claimed_by IS NULL OR "sales_delayed".claimed_until <= ?)
-- {'failure_count': 0, 'id': 'm1'}

-- # notify


-- # storage options


-- # among
SELECT "sales_delayed".message_id
FROM "sales_delayed"
WHERE "sales_delayed".message_id IN (SELECT anon_1.value
FROM json_each(?) AS anon_1)
