-- # table
CREATE TABLE `my schema`.`billing_queue` (
	seq BIGINT NOT NULL AUTO_INCREMENT,
	message_id VARBINARY(255) NOT NULL,
	due_time DATETIME(6) NOT NULL,
	headers LONGTEXT,
	properties LONGTEXT,
	body LONGBLOB NOT NULL,
	enqueued_at DATETIME(6) NOT NULL,
	PRIMARY KEY (seq)
)ENGINE=InnoDB ROW_FORMAT=DYNAMIC

-- # insert
INSERT INTO `my schema`.`billing_queue` (seq, message_id, due_time, headers, properties, body, enqueued_at) VALUES (%(seq)s, %(message_id)s, %(due_time)s, %(headers)s, %(properties)s, %(body)s, %(enqueued_at)s)

-- # claimed and consumed
SELECT `my schema`.`billing_queue`.seq, `my schema`.`billing_queue`.message_id, `my schema`.`billing_queue`.due_time, `my schema`.`billing_queue`.headers, `my schema`.`billing_queue`.properties, `my schema`.`billing_queue`.body, `my schema`.`billing_queue`.enqueued_at
FROM `my schema`.`billing_queue`
WHERE `my schema`.`billing_queue`.seq > %(seq_1)s ORDER BY `my schema`.`billing_queue`.seq
 LIMIT %(param_1)s FOR UPDATE SKIP LOCKED
-- {'seq_1': 0, 'param_1': 10}
;
DELETE waiting FROM JSON_TABLE(%(numbers)s, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS taken STRAIGHT_JOIN `my schema`.`billing_queue` AS waiting FORCE INDEX (PRIMARY) ON waiting.seq = taken.seq
;
(commit)

-- # claimed and given back
SELECT `my schema`.`billing_queue`.seq, `my schema`.`billing_queue`.message_id, `my schema`.`billing_queue`.due_time, `my schema`.`billing_queue`.headers, `my schema`.`billing_queue`.properties, `my schema`.`billing_queue`.body, `my schema`.`billing_queue`.enqueued_at
FROM `my schema`.`billing_queue`
WHERE `my schema`.`billing_queue`.seq > %(seq_1)s ORDER BY `my schema`.`billing_queue`.seq
 LIMIT %(param_1)s FOR UPDATE SKIP LOCKED
-- {'seq_1': 0, 'param_1': 10}
;
(close)

-- # delete
DELETE waiting FROM JSON_TABLE(%(numbers)s, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS taken STRAIGHT_JOIN `my schema`.`billing_queue` AS waiting FORCE INDEX (PRIMARY) ON waiting.seq = taken.seq

-- # lock wait
SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout
;
SET SESSION innodb_lock_wait_timeout = 3, SESSION lock_wait_timeout = 3
;
(block)
;
SET SESSION innodb_lock_wait_timeout = 50, SESSION lock_wait_timeout = 60
