-- # registry
CREATE TABLE `my schema`.`sales_delayed_loads` (
	load_id VARBINARY(255) NOT NULL,
	is_stream INTEGER NOT NULL,
	batch BIGINT,
	token VARBINARY(20),
	host VARBINARY(255) NOT NULL,
	pid INTEGER NOT NULL,
	place VARBINARY(255),
	process_started BIGINT,
	began DATETIME(6) NOT NULL,
	heartbeat DATETIME(6) NOT NULL,
	lease_until DATETIME(6) NOT NULL,
	finished_at DATETIME(6),
	`stored` BIGINT,
	skipped BIGINT,
	messages BIGINT,
	rejected BIGINT,
	first_due DATETIME(6),
	last_due DATETIME(6),
	cancelled_at DATETIME(6),
	cancelled_by VARBINARY(255),
	number INTEGER,
	PRIMARY KEY (load_id)
)ENGINE=InnoDB ROW_FORMAT=DYNAMIC
;
CREATE UNIQUE INDEX sales_delayed_loads_number ON `my schema`.`sales_delayed_loads` (number)

-- # staging
CREATE TABLE `my schema`.`sales_delayed_load_0123456789abcdef0123` (
	number BIGINT NOT NULL AUTO_INCREMENT,
	attempt BIGINT NOT NULL,
	message_id VARBINARY(255) NOT NULL,
	destination VARBINARY(1600) NOT NULL,
	due_time DATETIME(6) NOT NULL,
	next_attempt DATETIME(6) NOT NULL,
	failure_count INTEGER NOT NULL,
	headers LONGTEXT,
	properties LONGTEXT,
	body LONGBLOB NOT NULL,
	message_key VARBINARY(255),
	not_after DATETIME(6),
	PRIMARY KEY (number)
)ENGINE=InnoDB ROW_FORMAT=DYNAMIC

-- # begin
(begin)

-- # take time


-- # create
(create)

-- # drop
SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout
;
SET SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 2
;
DROP TABLE IF EXISTS "a:b"
;
SET SESSION innodb_lock_wait_timeout = 50, SESSION lock_wait_timeout = 60

-- # empty
SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout
;
SET SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 2
;
TRUNCATE TABLE "a:b"
;
SET SESSION innodb_lock_wait_timeout = 50, SESSION lock_wait_timeout = 60

-- # promoting, duplicates: error
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1])

-- # promoting, duplicates: ignore
INSERT IGNORE INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1])

-- # promoting, duplicates: replace
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt, failure_count, headers, properties, body) SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1]) ON DUPLICATE KEY UPDATE destination = VALUES(destination), due_time = CASE WHEN (`my schema`.`sales_delayed`.due_time <= VALUES(due_time) AND least(VALUES(due_time), timestampadd(MICROSECOND, 999, `my schema`.`sales_delayed`.due_time)) = VALUES(due_time)) THEN CASE WHEN (`my schema`.`sales_delayed`.due_time > %(param_1)s) THEN date_sub(`my schema`.`sales_delayed`.due_time, INTERVAL 1 MICROSECOND) ELSE %(param_2)s END ELSE VALUES(due_time) END, next_attempt = VALUES(next_attempt), failure_count = VALUES(failure_count), headers = VALUES(headers), properties = VALUES(properties), body = VALUES(body), message_key = %(param_3)s, first_sent = %(param_4)s, failures = %(param_5)s, failures_of = %(param_6)s

-- # claimed


-- # there already
SELECT DISTINCT staged.message_id
FROM (SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id AS message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination AS destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time AS due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt AS next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count AS failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers AS headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties AS properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body AS body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1])) AS staged INNER JOIN `my schema`.`sales_delayed` ON `my schema`.`sales_delayed`.message_id = staged.message_id
WHERE staged.message_id > %(message_id_1)s ORDER BY staged.message_id
 LIMIT %(param_1)s
-- {'message_id_1': 'm', 'param_1': 10}

-- # distinct ids
SELECT count(DISTINCT staged.message_id) AS count_1
FROM (SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id AS message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination AS destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time AS due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt AS next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count AS failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers AS headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties AS properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body AS body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1])) AS staged

-- # twice
SELECT staged.message_id
FROM (SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id AS message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination AS destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time AS due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt AS next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count AS failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers AS headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties AS properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body AS body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1])) AS staged GROUP BY staged.message_id
HAVING count(*) > %(count_1)s ORDER BY staged.message_id
 LIMIT %(param_1)s
-- {'count_1': 1, 'param_1': 10}

-- # waiting already
SELECT staged.message_id
FROM (SELECT `my schema`.`sales_delayed_load_0123456789abcdef0123`.message_id AS message_id, `my schema`.`sales_delayed_load_0123456789abcdef0123`.destination AS destination, `my schema`.`sales_delayed_load_0123456789abcdef0123`.due_time AS due_time, `my schema`.`sales_delayed_load_0123456789abcdef0123`.next_attempt AS next_attempt, `my schema`.`sales_delayed_load_0123456789abcdef0123`.failure_count AS failure_count, `my schema`.`sales_delayed_load_0123456789abcdef0123`.headers AS headers, `my schema`.`sales_delayed_load_0123456789abcdef0123`.properties AS properties, `my schema`.`sales_delayed_load_0123456789abcdef0123`.body AS body
FROM `my schema`.`sales_delayed_load_0123456789abcdef0123`
WHERE `my schema`.`sales_delayed_load_0123456789abcdef0123`.attempt IN (__[POSTCOMPILE_attempt_1])) AS staged INNER JOIN `my schema`.`sales_delayed` ON `my schema`.`sales_delayed`.message_id = staged.message_id ORDER BY staged.message_id
 LIMIT %(param_1)s
-- {'param_1': 10}

-- # registry insert
INSERT INTO `my schema`.`sales_delayed_loads` (load_id, is_stream, batch, token, host, pid, place, process_started, began, heartbeat, lease_until, finished_at, `stored`, skipped, messages, rejected, first_due, last_due, cancelled_at, cancelled_by, number) VALUES (%(load_id)s, %(is_stream)s, %(batch)s, %(token)s, %(host)s, %(pid)s, %(place)s, %(process_started)s, %(began)s, %(heartbeat)s, %(lease_until)s, %(finished_at)s, %(stored)s, %(skipped)s, %(messages)s, %(rejected)s, %(first_due)s, %(last_due)s, %(cancelled_at)s, %(cancelled_by)s, %(number)s)
