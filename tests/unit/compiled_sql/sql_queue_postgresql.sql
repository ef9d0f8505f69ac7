-- # table
CREATE TABLE "my schema"."billing_queue" (
	seq BIGSERIAL NOT NULL,
	message_id VARCHAR COLLATE "C" NOT NULL,
	due_time TIMESTAMP WITH TIME ZONE NOT NULL,
	headers VARCHAR,
	properties VARCHAR,
	body BYTEA NOT NULL,
	enqueued_at TIMESTAMP WITH TIME ZONE NOT NULL,
	PRIMARY KEY (seq)
)

-- # insert
INSERT INTO "my schema"."billing_queue" (seq, message_id, due_time, headers, properties, body, enqueued_at) VALUES (%(seq)s::BIGINT, %(message_id)s::VARCHAR COLLATE "C", %(due_time)s::TIMESTAMP WITH TIME ZONE, %(headers)s::VARCHAR, %(properties)s::VARCHAR, %(body)s, %(enqueued_at)s::TIMESTAMP WITH TIME ZONE)

-- # claimed and consumed
SELECT "my schema"."billing_queue".seq, "my schema"."billing_queue".message_id, "my schema"."billing_queue".due_time, "my schema"."billing_queue".headers, "my schema"."billing_queue".properties, "my schema"."billing_queue".body, "my schema"."billing_queue".enqueued_at
FROM "my schema"."billing_queue"
WHERE "my schema"."billing_queue".seq > %(seq_1)s::BIGINT ORDER BY "my schema"."billing_queue".seq
 LIMIT %(param_1)s::INTEGER FOR UPDATE SKIP LOCKED
-- {'seq_1': 0, 'param_1': 10}
;
DELETE FROM "my schema"."billing_queue" WHERE "my schema"."billing_queue".seq = %(number)s::BIGINT
;
(commit)

-- # claimed and given back
SELECT "my schema"."billing_queue".seq, "my schema"."billing_queue".message_id, "my schema"."billing_queue".due_time, "my schema"."billing_queue".headers, "my schema"."billing_queue".properties, "my schema"."billing_queue".body, "my schema"."billing_queue".enqueued_at
FROM "my schema"."billing_queue"
WHERE "my schema"."billing_queue".seq > %(seq_1)s::BIGINT ORDER BY "my schema"."billing_queue".seq
 LIMIT %(param_1)s::INTEGER FOR UPDATE SKIP LOCKED
-- {'seq_1': 0, 'param_1': 10}
;
(close)

-- # delete
DELETE FROM "my schema"."billing_queue" WHERE "my schema"."billing_queue".seq = %(number)s::BIGINT

-- # lock wait
SELECT set_config('lock_timeout', %(limit)s, true)
-- {'limit': '2500ms'}
;
(block)
