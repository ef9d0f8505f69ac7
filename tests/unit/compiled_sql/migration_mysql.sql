-- # tables
CREATE TABLE `my schema`.`sales_delayed_migration_run` (
	run_id VARBINARY(36) NOT NULL,
	endpoint VARBINARY(1600) NOT NULL,
	target VARBINARY(1600) NOT NULL,
	cutoff DATETIME(6),
	batch_size INTEGER NOT NULL,
	status VARBINARY(20) NOT NULL,
	started DATETIME(6) NOT NULL,
	completed DATETIME(6),
	holder VARBINARY(1600),
	PRIMARY KEY (run_id)
)ENGINE=InnoDB ROW_FORMAT=DYNAMIC
;
CREATE TABLE `my schema`.`sales_delayed_migration_batches` (
	number INTEGER NOT NULL,
	run_id VARBINARY(36) NOT NULL,
	status VARBINARY(20) NOT NULL,
	prepared INTEGER NOT NULL,
	rejected INTEGER NOT NULL DEFAULT '0',
	returned INTEGER NOT NULL DEFAULT '0',
	PRIMARY KEY (number)
)ENGINE=InnoDB ROW_FORMAT=DYNAMIC
;
CREATE INDEX sales_delayed_migration_batches_of_run ON `my schema`.`sales_delayed_migration_batches` (run_id)

-- # lock
SELECT get_lock(%(get_lock_2)s, %(get_lock_3)s) AS get_lock_1
-- {'get_lock_2': 'delaystore.e27da997a21ccec26660cc9f5a05caaa717ff065', 'get_lock_3': 0}
;
SET SESSION wait_timeout = 604800
;
SELECT release_lock(%(release_lock_2)s) AS release_lock_1
-- {'release_lock_2': 'delaystore.e27da997a21ccec26660cc9f5a05caaa717ff065'}

-- # holder
SELECT id, user, host FROM information_schema.processlist WHERE id = IS_USED_LOCK(%(lock)s)
-- {'lock': 'delaystore.e27da997a21ccec26660cc9f5a05caaa717ff065'}

-- # side table
CREATE TABLE IF NOT EXISTS `my schema`.`sales_delayed_migrating` (migration_batch INT NOT NULL DEFAULT 0, migration_rejected LONGTEXT CHARACTER SET utf8mb4, PRIMARY KEY (migration_batch, `message_id`)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC AS SELECT `message_id`, `destination`, `due_time`, `next_attempt` FROM `my schema`.`sales_delayed` WHERE 1 = 0

-- # dropping
DROP TABLE IF EXISTS `my schema`.`sales_delayed_migrating`, `my schema`.`sales_delayed_migration_batches`, `my schema`.`sales_delayed_migration_run`

-- # writing
(begin)

-- # by index


-- # search
SELECT `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt > %(param_1)s OR `my schema`.`sales_delayed`.next_attempt = %(param_1)s AND `my schema`.`sales_delayed`.message_id > %(param_2)s ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(param_3)s
-- {'param_2': 'm1', 'param_3': 7}

-- # hide
SELECT `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.next_attempt > %(param_1)s OR `my schema`.`sales_delayed`.next_attempt = %(param_1)s AND `my schema`.`sales_delayed`.message_id > %(param_2)s ORDER BY `my schema`.`sales_delayed`.next_attempt, `my schema`.`sales_delayed`.message_id
 LIMIT %(param_3)s
-- {'param_2': 'm1', 'param_3': 7}
;
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed` FORCE INDEX (PRIMARY)
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids_1]) AND `my schema`.`sales_delayed`.next_attempt > %(next_attempt_1)s FOR UPDATE SKIP LOCKED
;
INSERT INTO `my schema`.`sales_delayed_migrating` (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, %(param_1)s AS anon_1, NULL AS anon_2
FROM `my schema`.`sales_delayed` FORCE INDEX (PRIMARY)
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids_1])
-- {'param_1': 3}
;
DELETE waiting FROM `my schema`.`sales_delayed_migrating` AS moved STRAIGHT_JOIN `my schema`.`sales_delayed` AS waiting FORCE INDEX (PRIMARY) ON waiting.`message_id` = moved.`message_id` WHERE moved.migration_batch = 3

-- # among
SELECT `my schema`.`sales_delayed`.message_id
FROM `my schema`.`sales_delayed`
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids_1])

-- # moving
INSERT INTO `my schema`.`sales_delayed_migrating` (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt, %(param_1)s AS anon_1, NULL AS anon_2
FROM `my schema`.`sales_delayed` FORCE INDEX (PRIMARY)
WHERE `my schema`.`sales_delayed`.message_id IN (__[POSTCOMPILE_ids_1])
-- {'param_1': 3}

-- # removing
DELETE waiting FROM `my schema`.`sales_delayed_migrating` AS moved STRAIGHT_JOIN `my schema`.`sales_delayed` AS waiting FORCE INDEX (PRIMARY) ON waiting.`message_id` = moved.`message_id` WHERE moved.migration_batch = 3

-- # rejecting
UPDATE `my schema`.`sales_delayed_migrating` SET migration_rejected=%(rejected_because)s WHERE `my schema`.`sales_delayed_migrating`.migration_batch = %(migration_batch_1)s AND `my schema`.`sales_delayed_migrating`.message_id = %(rejected_row)s
-- {'migration_batch_1': 3}

-- # bytewise
SELECT CAST(`my schema`.`sales_delayed`.destination AS BINARY) AS destination
FROM `my schema`.`sales_delayed`

-- # rights_checks
SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt
FROM `my schema`.`sales_delayed` FORCE INDEX (PRIMARY)
WHERE %(param_1)s = %(param_2)s FOR UPDATE SKIP LOCKED
-- {'param_1': 1, 'param_2': 0}
;
INSERT INTO `my schema`.`sales_delayed` (message_id, destination, due_time, next_attempt) SELECT `my schema`.`sales_delayed`.message_id, `my schema`.`sales_delayed`.destination, `my schema`.`sales_delayed`.due_time, `my schema`.`sales_delayed`.next_attempt
FROM `my schema`.`sales_delayed`
WHERE %(param_1)s = %(param_2)s
-- {'param_1': 1, 'param_2': 0}
;
DELETE FROM `my schema`.`sales_delayed` WHERE %(param_1)s = %(param_2)s
-- {'param_1': 1, 'param_2': 0}

-- # may create


-- # name
`my schema`.`sales_delayed`

-- # clock
SELECT utc_timestamp(%(utc_timestamp_2)s) AS utc_timestamp_1
-- {'utc_timestamp_2': 6}
