-- # table
CREATE TABLE `my schema`.`sales_delayed` (
	message_id VARBINARY(255) NOT NULL,
	destination VARBINARY(1600) NOT NULL,
	due_time DATETIME(6) NOT NULL,
	next_attempt DATETIME(6) NOT NULL,
	failure_count INTEGER NOT NULL DEFAULT '0',
	headers LONGTEXT,
	properties LONGTEXT,
	body LONGBLOB NOT NULL,
	message_key VARBINARY(255),
	first_sent DATETIME(6),
	failures LONGTEXT,
	failures_of VARBINARY(255),
	failing_at DATETIME(6) GENERATED ALWAYS AS (CASE WHEN failure_count > 0 THEN next_attempt END) VIRTUAL,
	not_after DATETIME(6),
	load_number INTEGER,
	PRIMARY KEY (message_id)
)ENGINE=InnoDB ROW_FORMAT=DYNAMIC
;
CREATE INDEX sales_delayed_due ON `my schema`.`sales_delayed` (next_attempt, message_id)
;
CREATE INDEX sales_delayed_failing ON `my schema`.`sales_delayed` (failing_at, message_id)
;
CREATE UNIQUE INDEX sales_delayed_keys ON `my schema`.`sales_delayed` (message_key)
;
CREATE INDEX sales_delayed_load ON `my schema`.`sales_delayed` (load_number, message_id)

-- # buckets
SELECT numbered.number, count(*) AS messages
FROM (SELECT (timestampdiff(MICROSECOND, '1970-01-01', CASE WHEN (`my schema`.`sales_delayed`.due_time = `my schema`.`sales_delayed`.next_attempt) THEN `my schema`.`sales_delayed`.due_time WHEN (least(`my schema`.`sales_delayed`.next_attempt, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = `my schema`.`sales_delayed`.next_attempt AND least(`my schema`.`sales_delayed`.due_time, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.next_attempt)) = `my schema`.`sales_delayed`.due_time) THEN `my schema`.`sales_delayed`.next_attempt ELSE `my schema`.`sales_delayed`.due_time END) - (timestampdiff(MICROSECOND, '1970-01-01', CASE WHEN (`my schema`.`sales_delayed`.due_time = `my schema`.`sales_delayed`.next_attempt) THEN `my schema`.`sales_delayed`.due_time WHEN (least(`my schema`.`sales_delayed`.next_attempt, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = `my schema`.`sales_delayed`.next_attempt AND least(`my schema`.`sales_delayed`.due_time, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.next_attempt)) = `my schema`.`sales_delayed`.due_time) THEN `my schema`.`sales_delayed`.next_attempt ELSE `my schema`.`sales_delayed`.due_time END) %% (%(seconds)s * %(param_1)s) + %(seconds)s * %(param_1)s) %% (%(seconds)s * %(param_1)s)) DIV (%(seconds)s * %(param_1)s) AS number, `my schema`.`sales_delayed`.destination AS destination
FROM `my schema`.`sales_delayed`) AS numbered GROUP BY numbered.number ORDER BY numbered.number
-- {'param_1': 1000000}

-- # candidates
SELECT STRAIGHT_JOIN found.next_attempt, found.message_id, length(`my schema`.`sales_delayed`.body) AS size
FROM (SELECT `my schema`.`sales_delayed`.next_attempt AS next_attempt, `my schema`.`sales_delayed`.message_id AS message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt <= %(at)s ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(limit)s) AS found INNER JOIN `my schema`.`sales_delayed` FORCE INDEX (PRIMARY) ON found.message_id = `my schema`.`sales_delayed`.message_id ORDER BY found.next_attempt, found.message_id

-- # candidates_behind
SELECT STRAIGHT_JOIN found.next_attempt, found.message_id, length(`my schema`.`sales_delayed`.body) AS size
FROM (SELECT `my schema`.`sales_delayed`.next_attempt AS next_attempt, `my schema`.`sales_delayed`.message_id AS message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt <= %(at)s AND `my schema`.`sales_delayed`.next_attempt >= %(after_next_attempt)s AND (`my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id) > (%(after_next_attempt)s, %(after_message_id)s) ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(limit)s) AS found INNER JOIN `my schema`.`sales_delayed` FORCE INDEX (PRIMARY) ON found.message_id = `my schema`.`sales_delayed`.message_id ORDER BY found.next_attempt, found.message_id

-- # claimed
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids])

-- # count
SELECT count(*) AS count_1
FROM `my schema`.`sales_delayed`

-- # count_failure
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(new_next_attempt)s, failure_count=(`my schema`.`sales_delayed`.failure_count + %(failure_count_1)s), failures=right(concat(CASE WHEN (`my schema`.`sales_delayed`.failures_of = `my schema`.`sales_delayed`.message_id) THEN `my schema`.`sales_delayed`.failures ELSE %(param_1)s END, %(line)s), 8000), failures_of=`my schema`.`sales_delayed`.message_id WHERE `my schema`.`sales_delayed`.message_id = %(id)s
-- {'failure_count_1': 1, 'param_1': ''}

-- # count_failure_stored
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(new_next_attempt)s, failure_count=(`my schema`.`sales_delayed`.failure_count + %(failure_count_1)s), failures=right(concat(CASE WHEN (`my schema`.`sales_delayed`.failures_of = `my schema`.`sales_delayed`.message_id) THEN `my schema`.`sales_delayed`.failures ELSE %(param_1)s END, %(line)s), 8000), failures_of=`my schema`.`sales_delayed`.message_id WHERE `my schema`.`sales_delayed`.message_id = %(id)s
-- {'failure_count_1': 1, 'param_1': ''}

-- # count_some
SELECT count(*) AS count_1
FROM (SELECT %(param_1)s AS anon_1
FROM `my schema`.`sales_delayed`
 LIMIT %(limit)s) AS some
-- {'param_1': 1}

-- # first
SELECT `my schema`.`sales_delayed`.next_attempt
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt <= %(param_1)s ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(param_2)s
-- {'param_2': 1}

-- # first_behind
SELECT `my schema`.`sales_delayed`.next_attempt
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt <= %(param_1)s AND `my schema`.`sales_delayed`.next_attempt >= %(after_next_attempt)s AND (`my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id) > (%(after_next_attempt)s, %(after_message_id)s) ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(param_2)s
-- {'param_2': 1}

-- # get
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.failure_count, `my schema`.`sales_delayed`.headers, `my schema`.`sales_delayed`.properties, `my schema`.`sales_delayed`.body, `my schema`.`sales_delayed`.not_after AS not_after, `my schema`.`sales_delayed`.message_key, `my schema`.`sales_delayed`.failures, `my schema`.`sales_delayed`.failures_of
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # increment
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(new_next_attempt)s, failure_count=(`my schema`.`sales_delayed`.failure_count + %(failure_count_1)s) WHERE `my schema`.`sales_delayed`.message_id = %(id)s
-- {'failure_count_1': 1}

-- # increment_stored
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(new_next_attempt)s, failure_count=(`my schema`.`sales_delayed`.failure_count + %(failure_count_1)s) WHERE `my schema`.`sales_delayed`.message_id = %(id)s
-- {'failure_count_1': 1}

-- # lock_candidates
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.failure_count, `my schema`.`sales_delayed`.headers, `my schema`.`sales_delayed`.properties, `my schema`.`sales_delayed`.body, `my schema`.`sales_delayed`.not_after AS not_after
FROM `my schema`.`sales_delayed` FORCE INDEX (PRIMARY)
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids]) AND `my schema`.`sales_delayed`.next_attempt <= %(at)s ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id FOR UPDATE SKIP LOCKED

-- # mark
UPDATE `my schema`.`sales_delayed` SET due_time=CASE WHEN (`my schema`.`sales_delayed`.due_time > %(param_1)s) THEN date_sub(`my schema`.`sales_delayed`.due_time, INTERVAL 1 MICROSECOND) ELSE %(param_2)s END

-- # page
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.failure_count, `my schema`.`sales_delayed`.headers, `my schema`.`sales_delayed`.properties, `my schema`.`sales_delayed`.body, `my schema`.`sales_delayed`.not_after AS not_after, `my schema`.`sales_delayed`.message_key, `my schema`.`sales_delayed`.failures, `my schema`.`sales_delayed`.failures_of
FROM `my schema`.`sales_delayed` ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(limit)s

-- # page_behind
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.failure_count, `my schema`.`sales_delayed`.headers, `my schema`.`sales_delayed`.properties, `my schema`.`sales_delayed`.body, `my schema`.`sales_delayed`.not_after AS not_after, `my schema`.`sales_delayed`.message_key, `my schema`.`sales_delayed`.failures, `my schema`.`sales_delayed`.failures_of
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt >= %(after_next_attempt)s AND (`my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id) > (%(after_next_attempt)s, %(after_message_id)s) ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(limit)s

-- # park
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(next_attempt)s

-- # park_claimed
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(next_attempt)s WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids])

-- # postpone
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(new_next_attempt)s WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # postpone_stored
UPDATE `my schema`.`sales_delayed` SET next_attempt=%(new_next_attempt)s WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # remove_many
DELETE waiting FROM JSON_TABLE(%(ids)s, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS ids STRAIGHT_JOIN `my schema`.`sales_delayed` AS waiting FORCE INDEX (PRIMARY) ON waiting.message_id = CAST(ids.id AS BINARY)

-- # remove_stored
DELETE FROM `my schema`.`sales_delayed` WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # set_due_time
UPDATE `my schema`.`sales_delayed` SET due_time=%(new_due_time)s WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # shift
UPDATE `my schema`.`sales_delayed` SET not_after=timestampadd(MICROSECOND, least(timestampdiff(MICROSECOND, CASE WHEN (`my schema`.`sales_delayed`.due_time = `my schema`.`sales_delayed`.next_attempt) THEN `my schema`.`sales_delayed`.due_time WHEN (least(`my schema`.`sales_delayed`.next_attempt, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = `my schema`.`sales_delayed`.next_attempt AND least(`my schema`.`sales_delayed`.due_time, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.next_attempt)) = `my schema`.`sales_delayed`.due_time) THEN `my schema`.`sales_delayed`.next_attempt ELSE `my schema`.`sales_delayed`.due_time END, timestampadd(MICROSECOND, %(microseconds)s, CASE WHEN (`my schema`.`sales_delayed`.due_time = `my schema`.`sales_delayed`.next_attempt) THEN `my schema`.`sales_delayed`.due_time WHEN (least(`my schema`.`sales_delayed`.next_attempt, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = `my schema`.`sales_delayed`.next_attempt AND least(`my schema`.`sales_delayed`.due_time, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.next_attempt)) = `my schema`.`sales_delayed`.due_time) THEN `my schema`.`sales_delayed`.next_attempt ELSE `my schema`.`sales_delayed`.due_time END)), timestampdiff(MICROSECOND, `my schema`.`sales_delayed`.not_after, %(param_1)s)), `my schema`.`sales_delayed`.not_after), due_time=timestampadd(MICROSECOND, %(microseconds)s, CASE WHEN (`my schema`.`sales_delayed`.due_time = `my schema`.`sales_delayed`.next_attempt) THEN `my schema`.`sales_delayed`.due_time WHEN (least(`my schema`.`sales_delayed`.next_attempt, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = `my schema`.`sales_delayed`.next_attempt AND least(`my schema`.`sales_delayed`.due_time, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.next_attempt)) = `my schema`.`sales_delayed`.due_time) THEN `my schema`.`sales_delayed`.next_attempt ELSE `my schema`.`sales_delayed`.due_time END), next_attempt=`my schema`.`sales_delayed`.due_time, failure_count=%(failure_count)s
-- {'failure_count': 0}

-- # show
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.failure_count, `my schema`.`sales_delayed`.headers, `my schema`.`sales_delayed`.properties, `my schema`.`sales_delayed`.body, `my schema`.`sales_delayed`.not_after AS not_after, `my schema`.`sales_delayed`.message_key, `my schema`.`sales_delayed`.failures, `my schema`.`sales_delayed`.failures_of
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids])

-- # shown
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.failure_count, `my schema`.`sales_delayed`.headers, `my schema`.`sales_delayed`.properties, `my schema`.`sales_delayed`.body, `my schema`.`sales_delayed`.not_after AS not_after, `my schema`.`sales_delayed`.message_key, `my schema`.`sales_delayed`.failures, `my schema`.`sales_delayed`.failures_of
FROM `my schema`.`sales_delayed`

-- # status
SELECT utc_timestamp(%(utc_timestamp_1)s) AS now, (CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF')) AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT `my schema`.`sales_delayed`.due_time AS due_time, `my schema`.`sales_delayed`.next_attempt AS next_attempt
FROM `my schema`.`sales_delayed` ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(param_1)s) AS ahead
WHERE ahead.due_time >= %(param_2)s AND NOT (ahead.next_attempt >= %(param_3)s AND ahead.due_time < %(param_3)s)) AS first_due
-- {'utc_timestamp_1': 6, 'param_1': 1000}

-- # status_behind
SELECT utc_timestamp(%(utc_timestamp_1)s) AS now, (CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF')) AS read_only, (SELECT min(ahead.due_time) AS min_1
FROM (SELECT `my schema`.`sales_delayed`.due_time AS due_time, `my schema`.`sales_delayed`.next_attempt AS next_attempt
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt >= %(after_next_attempt)s AND (`my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id) > (%(after_next_attempt)s, %(after_message_id)s) ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(param_1)s) AS ahead
WHERE ahead.due_time >= %(param_2)s AND NOT (ahead.next_attempt >= %(param_3)s AND ahead.due_time < %(param_3)s)) AS first_due
-- {'utc_timestamp_1': 6, 'param_1': 1000}

-- # there
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids])

-- # times
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # unpark
UPDATE `my schema`.`sales_delayed` SET next_attempt=`my schema`.`sales_delayed`.due_time

-- # waits
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # insert
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) VALUES (%(message_id)s, %(destination)s, %(due_time)s, %(next_attempt)s, %(failure_count)s, %(headers)s, %(properties)s, %(body)s)

-- # insert_alone
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) VALUES (%(message_id)s, %(destination)s, %(due_time)s, %(next_attempt)s, %(failure_count)s, %(headers)s, %(properties)s, %(body)s)

-- # insert with a latest delivery
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) VALUES (%(message_id)s, %(destination)s, %(due_time)s, %(next_attempt)s, %(failure_count)s, %(headers)s, %(properties)s, %(body)s, %(not_after)s)

-- # insert_alone with a latest delivery
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, not_after) VALUES (%(message_id)s, %(destination)s, %(due_time)s, %(next_attempt)s, %(failure_count)s, %(headers)s, %(properties)s, %(body)s, %(not_after)s)

-- # keyed: find
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_key = %(key)s

-- # keyed: find_newest
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_key = %(key)s LOCK IN SHARE MODE

-- # keyed: insert
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body, message_key, first_sent, not_after) VALUES (%(message_id)s, %(destination)s, %(due_time)s, %(next_attempt)s, %(failure_count)s, %(headers)s, %(properties)s, %(body)s, %(message_key)s, %(first_sent)s, %(not_after)s)

-- # keyed: lock
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.message_key, `my schema`.`sales_delayed`.first_sent, `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.destination
FROM `my schema`.`sales_delayed` FORCE INDEX (PRIMARY)
WHERE `my schema`.`sales_delayed`.message_id = %(id)s FOR UPDATE NOWAIT

-- # keyed: mark
UPDATE `my schema`.`sales_delayed` SET due_time=CASE WHEN (`my schema`.`sales_delayed`.due_time > %(param_1)s) THEN date_sub(`my schema`.`sales_delayed`.due_time, INTERVAL 1 MICROSECOND) ELSE %(param_2)s END WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # keyed: replace
UPDATE `my schema`.`sales_delayed` SET message_id=%(new_message_id)s, destination=%(new_destination)s, due_time=%(new_due_time)s, next_attempt=%(new_next_attempt)s, failure_count=%(new_failure_count)s, headers=%(new_headers)s, properties=%(new_properties)s, body=%(new_body)s, first_sent=%(new_first_sent)s, not_after=%(new_not_after)s WHERE `my schema`.`sales_delayed`.message_id = %(id)s

-- # clock
SELECT utc_timestamp(%(utc_timestamp_2)s) AS utc_timestamp_1
-- {'utc_timestamp_2': 6}

-- # setup lock
SELECT get_lock(%(get_lock_2)s, %(get_lock_3)s) AS get_lock_1
-- {'get_lock_2': 'delaystore.c8db3f760b92c515f958348c42db902642d1e390', 'get_lock_3': 60}
;
(block)
;
(commit)
;
SELECT release_lock(%(release_lock_2)s) AS release_lock_1
-- {'release_lock_2': 'delaystore.c8db3f760b92c515f958348c42db902642d1e390'}

-- # savepoint
(savepoint)
;
(block)

-- # cancel
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id = %(id)s FOR UPDATE NOWAIT
-- {'id': 'm1'}
;
DELETE FROM `my schema`.`sales_delayed` WHERE `my schema`.`sales_delayed`.message_id = %(id)s
-- {'id': 'm1'}

-- # reschedule
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id = %(id)s FOR UPDATE NOWAIT
-- {'id': 'm1'}
;
UPDATE `my schema`.`sales_delayed` SET not_after=timestampadd(MICROSECOND, least(timestampdiff(MICROSECOND, CASE WHEN (`my schema`.`sales_delayed`.due_time = `my schema`.`sales_delayed`.next_attempt) THEN `my schema`.`sales_delayed`.due_time WHEN (least(`my schema`.`sales_delayed`.next_attempt, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = `my schema`.`sales_delayed`.next_attempt AND least(`my schema`.`sales_delayed`.due_time, timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.next_attempt)) = `my schema`.`sales_delayed`.due_time) THEN `my schema`.`sales_delayed`.next_attempt ELSE `my schema`.`sales_delayed`.due_time END, %(new_due_time)s), timestampdiff(MICROSECOND, `my schema`.`sales_delayed`.not_after, %(param_1)s)), `my schema`.`sales_delayed`.not_after), due_time=%(new_due_time)s, next_attempt=%(new_due_time)s, failure_count=%(failure_count)s WHERE `my schema`.`sales_delayed`.message_id = %(id)s
-- {'failure_count': 0, 'id': 'm1'}

-- # notify


-- # storage options


-- # among
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids])
