"""Whether a shelf is worth it, and may be made."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection

from delaystore.stores.sql.shelves._family import Family
from delaystore.stores.sql.shelves.limits import ShelfLimits

log = logging.getLogger("delaystore.stores")

_STEPS: Final = 6
"""How often the rows that are worth a shelf double until `most_shelves` are there."""
_CONDITIONS: Final = (
    ("pg_relation_size(live.oid) >= :smallest", "its rows are few"),
    ("there.shelves < :most", "there are as many as may be"),
    (
        "live.relowner = shelves.relowner AND pg_has_role(live.relowner, 'USAGE') AND pg_has_role(live.relowner, "
        "CASE WHEN CAST(current_setting('server_version_num') AS INTEGER) < 160000 THEN 'MEMBER' ELSE 'SET' END)",
        "this role has not the rights of its owner",
    ),
    (
        "n.nspname = COALESCE(CAST(:schema AS TEXT), current_schema()) AND has_schema_privilege(n.oid, 'CREATE') "
        "AND has_schema_privilege(live.relowner, n.oid, 'CREATE')",
        "this role, or its owner, may not create tables in its schema",
    ),
    ("NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = live.oid)", "it has triggers, which would not fire"),
    (
        "NOT EXISTS (SELECT FROM pg_publication_tables p "
        "WHERE p.schemaname = n.nspname AND p.tablename = live.relname)",
        "it is published to subscribers, which would not get one",
    ),
)
"""What must be so, and why there is no shelf where it is not."""
_WORTH: Final = (
    "SELECT CAST(:fewest * power(2, there.shelves * :steps / :most) AS BIGINT), "  # noqa: S608 - all written here
    + ", ".join(condition for condition, _ in _CONDITIONS)
    + " FROM pg_class live JOIN pg_namespace n ON n.oid = live.relnamespace, pg_class shelves, "
    "(SELECT count(*) AS shelves FROM pg_inherits WHERE inhparent = CAST(:shelves AS REGCLASS)) there "
    "WHERE live.oid = CAST(:live AS REGCLASS) AND shelves.oid = CAST(:shelves AS REGCLASS)"
)


def fewest_rows(connection: Connection, family: Family, limits: ShelfLimits) -> int | None:
    """The fewest rows that are worth a shelf now; None: none are, or our role may make none."""
    live = family.live
    row: Sequence[Any] = family.execute(
        connection,
        _WORTH,
        schema=live.schema,  # a shelf lies where its table does
        fewest=limits.fewest_rows,
        smallest=limits.smallest_table,
        most=limits.most_shelves,
        steps=_STEPS,
    ).one()
    fewest: int = row[0]
    reasons = (reason for is_met, (_, reason) in zip(row[1:], _CONDITIONS, strict=True) if not is_met)
    reason = next(reasons, None)
    if reason is None:
        return fewest
    log.info("%s gets no shelf: %s", live.fullname, reason)
    return None
