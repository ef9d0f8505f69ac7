-- # table
CREATE TABLE "my schema"."billing_queue" (
	seq INTEGER NOT NULL,
	message_id TEXT NOT NULL,
	due_time DATETIME NOT NULL,
	headers TEXT,
	properties TEXT,
	body BLOB NOT NULL,
	enqueued_at DATETIME NOT NULL,
	claimed_by TEXT,
	claimed_until DATETIME,
	PRIMARY KEY (seq)
)

-- # insert
INSERT INTO "my schema"."billing_queue" (seq, message_id, due_time, headers, properties, body, enqueued_at, claimed_by, claimed_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- # claimed and consumed
SELECT "my schema"."billing_queue".seq
FROM "my schema"."billing_queue"
WHERE "my schema"."billing_queue".seq > ? AND ("my schema"."billing_queue".claimed_until IS NULL OR "my schema"."billing_queue".claimed_until <= ?) ORDER BY "my schema"."billing_queue".seq
 LIMIT ? OFFSET ?
-- {'seq_1': 0, 'param_1': 1, 'param_2': 0}
;
(begin)
;
BEGIN IMMEDIATE
;
UPDATE "my schema"."billing_queue" SET claimed_by=?, claimed_until=? WHERE "my schema"."billing_queue".seq IN (SELECT "my schema"."billing_queue".seq
FROM "my schema"."billing_queue"
WHERE "my schema"."billing_queue".seq > ? AND ("my schema"."billing_queue".claimed_until IS NULL OR "my schema"."billing_queue".claimed_until <= ?) ORDER BY "my schema"."billing_queue".seq
 LIMIT ? OFFSET ?) RETURNING seq, message_id, due_time, headers, properties, body, enqueued_at, claimed_by, claimed_until
-- {'seq_1': 0, 'param_1': 10, 'param_2': 0}
;
(begin)
;
BEGIN IMMEDIATE
;
DELETE FROM "my schema"."billing_queue" WHERE "my schema"."billing_queue".seq BETWEEN ? AND ? AND "my schema"."billing_queue".claimed_by = ?
-- {'seq_1': 1, 'seq_2': 1}

-- # claimed and given back
SELECT "my schema"."billing_queue".seq
FROM "my schema"."billing_queue"
WHERE "my schema"."billing_queue".seq > ? AND ("my schema"."billing_queue".claimed_until IS NULL OR "my schema"."billing_queue".claimed_until <= ?) ORDER BY "my schema"."billing_queue".seq
 LIMIT ? OFFSET ?
-- {'seq_1': 0, 'param_1': 1, 'param_2': 0}
;
(begin)
;
BEGIN IMMEDIATE
;
UPDATE "my schema"."billing_queue" SET claimed_by=?, claimed_until=? WHERE "my schema"."billing_queue".seq IN (SELECT "my schema"."billing_queue".seq
FROM "my schema"."billing_queue"
WHERE "my schema"."billing_queue".seq > ? AND ("my schema"."billing_queue".claimed_until IS NULL OR "my schema"."billing_queue".claimed_until <= ?) ORDER BY "my schema"."billing_queue".seq
 LIMIT ? OFFSET ?) RETURNING seq, message_id, due_time, headers, properties, body, enqueued_at, claimed_by, claimed_until
-- {'seq_1': 0, 'param_1': 10, 'param_2': 0}
;
(begin)
;
BEGIN IMMEDIATE
;
UPDATE "my schema"."billing_queue" SET claimed_by=?, claimed_until=? WHERE "my schema"."billing_queue".claimed_by = ?

-- # delete
DELETE FROM "my schema"."billing_queue" WHERE "my schema"."billing_queue".seq = ?

-- # lock wait
PRAGMA busy_timeout
;
PRAGMA busy_timeout = 2500
;
(block)
;
PRAGMA busy_timeout = 1
