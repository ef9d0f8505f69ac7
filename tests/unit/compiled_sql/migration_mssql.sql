-- # tables
CREATE TABLE [my schema].[sales_delayed_migration_run] (
	run_id NVARCHAR(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
	endpoint NVARCHAR(1600) COLLATE Latin1_General_100_BIN2 NOT NULL,
	target NVARCHAR(1600) COLLATE Latin1_General_100_BIN2 NOT NULL,
	cutoff DATETIME2(6) NULL,
	batch_size INTEGER NOT NULL,
	status NVARCHAR(20) COLLATE Latin1_General_100_BIN2 NOT NULL,
	started DATETIME2(6) NOT NULL,
	completed DATETIME2(6) NULL,
	holder NVARCHAR(1600) COLLATE Latin1_General_100_BIN2 NULL,
	PRIMARY KEY (run_id)
)
;
CREATE TABLE [my schema].[sales_delayed_migration_batches] (
	number INTEGER NOT NULL,
	run_id NVARCHAR(36) COLLATE Latin1_General_100_BIN2 NOT NULL,
	status NVARCHAR(20) COLLATE Latin1_General_100_BIN2 NOT NULL,
	prepared INTEGER NOT NULL,
	rejected INTEGER NOT NULL DEFAULT '0',
	returned INTEGER NOT NULL DEFAULT '0',
	PRIMARY KEY (number)
)
;
CREATE INDEX sales_delayed_migration_batches_of_run ON [my schema].[sales_delayed_migration_batches] (run_id)

-- # lock
DECLARE @taken int; EXEC @taken = sp_getapplock @Resource = :lock, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0; SELECT @taken
-- {'lock': 'delaystore migration my schema.sales_delayed'}
;
EXEC sp_releaseapplock @Resource = :lock, @LockOwner = 'Session'
-- {'lock': 'delaystore migration my schema.sales_delayed'}

-- # holder


-- # side table
SELECT [message_id], [destination], [due_time], [next_attempt], ISNULL(CAST(0 AS int), 0) AS migration_batch, CAST(NULL AS nvarchar(max)) AS migration_rejected INTO [my schema].[sales_delayed_migrating] FROM [my schema].[sales_delayed] WHERE 1 = 0
;
ALTER TABLE [my schema].[sales_delayed_migrating] ADD PRIMARY KEY (migration_batch, [message_id])

-- # dropping
DROP TABLE IF EXISTS [my schema].[sales_delayed_migrating], [my schema].[sales_delayed_migration_batches], [my schema].[sales_delayed_migration_run]

-- # writing
(begin)

-- # by index


-- # search
SELECT TOP (7) [my schema].[sales_delayed].next_attempt, [my schema].[sales_delayed].message_id
FROM [my schema].[sales_delayed] WITH (READPAST)
WHERE [my schema].[sales_delayed].next_attempt >= :param_1 AND ([my schema].[sales_delayed].next_attempt > :param_1 OR [my schema].[sales_delayed].message_id > :param_2) ORDER BY [my schema].[sales_delayed].next_attempt, [my schema].[sales_delayed].message_id
-- {'param_2': 'm1'}

-- # hide
SELECT TOP (7) [my schema].[sales_delayed].next_attempt, [my schema].[sales_delayed].message_id
FROM [my schema].[sales_delayed] WITH (READPAST)
WHERE [my schema].[sales_delayed].next_attempt >= :param_1 AND ([my schema].[sales_delayed].next_attempt > :param_1 OR [my schema].[sales_delayed].message_id > :param_2) ORDER BY [my schema].[sales_delayed].next_attempt, [my schema].[sales_delayed].message_id
-- {'param_2': 'm1'}
;
SELECT [my schema].[sales_delayed].message_id
FROM [my schema].[sales_delayed] WITH (READPAST, UPDLOCK, ROWLOCK)
WHERE [my schema].[sales_delayed].message_id IN (__[POSTCOMPILE_ids_1]) AND [my schema].[sales_delayed].next_attempt > :next_attempt_1
;
INSERT INTO [my schema].[sales_delayed_migrating] (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT [my schema].[sales_delayed].message_id, [my schema].[sales_delayed].destination, [my schema].[sales_delayed].due_time, [my schema].[sales_delayed].next_attempt, :param_1 AS anon_1, NULL AS anon_2
FROM [my schema].[sales_delayed]
WHERE [my schema].[sales_delayed].message_id IN (__[POSTCOMPILE_ids_1])
-- {'param_1': 3}
;
DELETE FROM [my schema].[sales_delayed] WHERE [my schema].[sales_delayed].message_id IN (__[POSTCOMPILE_ids_1])

-- # among
SELECT [my schema].[sales_delayed].message_id
FROM [my schema].[sales_delayed]
WHERE [my schema].[sales_delayed].message_id IN (__[POSTCOMPILE_ids_1])

-- # moving
INSERT INTO [my schema].[sales_delayed_migrating] (message_id, destination, due_time, next_attempt, migration_batch, migration_rejected) SELECT [my schema].[sales_delayed].message_id, [my schema].[sales_delayed].destination, [my schema].[sales_delayed].due_time, [my schema].[sales_delayed].next_attempt, :param_1 AS anon_1, NULL AS anon_2
FROM [my schema].[sales_delayed]
WHERE [my schema].[sales_delayed].message_id IN (__[POSTCOMPILE_ids_1])
-- {'param_1': 3}

-- # removing
DELETE FROM [my schema].[sales_delayed] WHERE [my schema].[sales_delayed].message_id IN (__[POSTCOMPILE_ids_1])

-- # rejecting
UPDATE [my schema].[sales_delayed_migrating] SET migration_rejected=:rejected_because WHERE [my schema].[sales_delayed_migrating].migration_batch = :migration_batch_1 AND [my schema].[sales_delayed_migrating].message_id = :rejected_row
-- {'migration_batch_1': 3}

-- # bytewise
SELECT [my schema].[sales_delayed].destination COLLATE Latin1_General_100_BIN2 AS anon_1
FROM [my schema].[sales_delayed]

-- # rights_checks
SELECT [my schema].[sales_delayed].message_id, [my schema].[sales_delayed].destination, [my schema].[sales_delayed].due_time, [my schema].[sales_delayed].next_attempt
FROM [my schema].[sales_delayed] WITH (READPAST, UPDLOCK, ROWLOCK)
WHERE :param_1 = :param_2
-- {'param_1': 1, 'param_2': 0}
;
INSERT INTO [my schema].[sales_delayed] (message_id, destination, due_time, next_attempt) SELECT [my schema].[sales_delayed].message_id, [my schema].[sales_delayed].destination, [my schema].[sales_delayed].due_time, [my schema].[sales_delayed].next_attempt
FROM [my schema].[sales_delayed]
WHERE :param_1 = :param_2
-- {'param_1': 1, 'param_2': 0}
;
DELETE FROM [my schema].[sales_delayed] WHERE :param_1 = :param_2
-- {'param_1': 1, 'param_2': 0}

-- # may create


-- # name
[my schema].[sales_delayed]

-- # clock
SELECT sysutcdatetime() AS sysutcdatetime_1
