"""Bulk partitions: tables beside the endpoint's own for messages stored in bulk. PostgreSQL reads them as one table.

Into a large table, rows in no order are inserted slowly: each changes another page of each index. A partition is filled
first, and its indexes are built then.

No primary key holds for several tables. So an insert looks for its message_id in the partitions, and a table becomes
a partition in three steps:

1. It is announced: from the next transaction on, every insert searches it.
2. All transactions that may not have seen it are waited for.
3. Its message_ids are compared with those of waiting messages, and it is attached to the endpoint's table, in the
   transaction that stores the messages.

The table in which a load is staged can become a partition itself, so that its rows are written once.

If the process dies before the third commit, the table stays behind. No statement reads messages from it, and the next
clean-up drops it; of a load's staging it only ends the announcement.

Only PostgreSQL supports this (`StoreDialect.bulk`), so the statements here are PostgreSQL's.
"""

from delaystore.stores.sql.bulk_partitions._partitions import Fill, PartitionManager, PendingPartition
from delaystore.stores.sql.bulk_partitions._tables import SENDS_NOTHING, BulkPartitions, PartitionLimits

__all__ = ["SENDS_NOTHING", "BulkPartitions", "Fill", "PartitionLimits", "PartitionManager", "PendingPartition"]
