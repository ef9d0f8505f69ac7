"""Shelves: tables beside the endpoint's own, in which what was stored in bulk waits. PostgreSQL reads them as one.

Into a large table, rows in no order are inserted slowly: each changes another page of each index. A shelf is filled
first, and its indexes are built then.

No primary key holds for several tables. So an insert looks for its message_id in the shelves, and a shelf becomes one
in three steps. It is announced: from the next transaction on, every insert looks into it. All transactions that may
not have seen it are waited for. Then its message_ids are compared with those that wait, and it is attached to the
endpoint's table, in the transaction that stores the messages. Whatever dies before that leaves a shelf that nobody
reads messages from, and that the next one to tidy up drops.

Only PostgreSQL has what this takes (`has_shelves`), so the statements here are PostgreSQL's.
"""

from delaystore.stores.sql.bulk_partitions._partitions import Fill, PartitionManager, PendingPartition
from delaystore.stores.sql.bulk_partitions._tables import SENDS_NOTHING, PartitionLimits

__all__ = ["SENDS_NOTHING", "Fill", "PartitionLimits", "PartitionManager", "PendingPartition"]
