"""Counting what a load has written to its folder of rejects."""

import json
import re
from collections.abc import Iterator

from delaystore.spark.conversion.places import absolute, folder, used
from delaystore.spark.conversion.rejects import file_name
from delaystore.spark.rejections import MAX_EXAMPLES, Reason, Rejections
from delaystore.spark.staging import LoadKey


def rejected_by(load_id: str, rejects: str | None) -> Rejections:
    """What the load has rejected; nothing without a folder. Raises LoadError where the folder cannot be read."""
    found: dict[str, Reason] = {}
    for line in () if rejects is None else _lines(load_id, rejects):
        *columns, (_, reason) = json.loads(line).items()
        known = found.get(reason, Reason(0))
        examples = (json.dumps(dict(columns), ensure_ascii=False),) if known.count < MAX_EXAMPLES else ()
        found[reason] = known + Reason(1, examples)
    return Rejections(found)


def _lines(load_id: str, rejects: str) -> Iterator[str]:
    place = absolute(rejects)
    of_load = re.compile(re.escape(file_name(LoadKey(load_id))) + r"-\d+\.jsonl")
    opened = folder(place)
    with used(place):
        for name in opened.finished():
            if of_load.fullmatch(name):
                with opened.files.open_input_stream(f"{opened.path}/{name}") as stream:
                    yield from _split(stream)


def _split(stream: object) -> Iterator[str]:
    from io import TextIOWrapper

    yield from TextIOWrapper(stream, encoding="utf-8")  # type: ignore[type-var]  # pyarrow's files are files
