"""Counting what a load has written to its folder of rejects."""

import json

from delaystore.spark.conversion.places import absolute
from delaystore.spark.conversion.rejects import RejectFolder, file_name, reject_place
from delaystore.spark.options import WriteOptions
from delaystore.spark.rejections import MAX_EXAMPLES, Reason, Rejections
from delaystore.spark.staging import LoadKey


def rejected_by(load_id: str, options: WriteOptions) -> Rejections:
    """What the load has rejected; nothing without a folder. Raises LoadError where the folder cannot be read."""
    found: dict[str, Reason] = {}
    rejects = reject_place(options)
    kept = None if rejects is None else RejectFolder(absolute(rejects), file_name(LoadKey(load_id)))
    for line in () if kept is None else kept.kept_lines():
        *columns, (_, reason) = json.loads(line).items()
        known = found.get(reason, Reason(0))
        examples = (json.dumps(dict(columns), ensure_ascii=False),) if known.count < MAX_EXAMPLES else ()
        found[reason] = known + Reason(1, examples)
    return Rejections(found)
