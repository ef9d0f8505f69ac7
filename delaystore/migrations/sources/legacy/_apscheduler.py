"""APScheduler's table of jobs (3.x, SQLAlchemyJobStore): `apscheduler_jobs` with id, next_run_time, job_state.

A job with a date trigger becomes a message whose body names the function and its arguments; `_recurring.py` has the
other jobs. job_state is a pickle, and is read as data: see `records.pickles`. The jobs are those of one program; which
endpoint's, the caller says.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy.types import TypeEngine
from typing_extensions import override

from delaystore.errors import ConfigurationError, InvalidMessageError
from delaystore.message import DelayedMessage, check_destination
from delaystore.migrations.abc import Identity
from delaystore.migrations.records.pickles import Foreign, read_pickle
from delaystore.migrations.records.reader import json_text
from delaystore.migrations.sources._sql.tables import EpochSeconds, RecurringError
from delaystore.migrations.sources.legacy.nservicebus import NamedTablesLayout

TABLE: Final = "apscheduler_jobs"
DATE: Final = "apscheduler.triggers.date.DateTrigger"
PROPERTIES: Final = {"content_type": "application/json"}
_LARGEST: Final = 16 * 2**20
"""Bytes of a body, as many as RabbitMQ takes; a small pickle can name one long text many times."""
_MOST_VALUES: Final = 1_000_000
"""Arguments and their contents; a pickle can name one part of it many times."""
_JSON: Final = json.JSONEncoder(ensure_ascii=False)


class ApschedulerLayout(NamedTablesLayout):
    """APScheduler's jobs, as messages for `destination`. `table`: its name; None: `apscheduler_jobs`.

    A paused job has no next run time, and stays. A job of another trigger than a date stays, too.
    Raises ConfigurationError without a destination, or for a bad one.
    """

    kind: ClassVar[str] = "APScheduler"
    columns: ClassVar[Mapping[str, str]] = {
        "id": "the job's id",
        "next_run_time": "when it runs",
        "job_state": "the job",
    }
    id_column: ClassVar[str] = "id"
    time_column: ClassVar[str] = "next_run_time"
    destination_column: ClassVar[str] = "id"  # there is none in the table: `destination` has the one for all
    identity_columns = ("id", "next_run_time")
    leaves_rejected = True  # a scheduler that still runs finds them
    has_recurring = True

    def __init__(self, destination: str | None, table: str | None = None) -> None:
        if destination is None:
            raise ConfigurationError(
                "apscheduler needs the destination of the messages that jobs become, as in "
                "apscheduler+postgresql://host/name?destination=jobs"
            )
        try:
            check_destination(destination)
        except InvalidMessageError as error:
            raise ConfigurationError(str(error)) from None
        self._destination = destination
        super().__init__(table or TABLE)

    @override
    def destination(self, value: Any) -> str:
        return self._destination

    @override
    def to_message(self, row: Mapping[str, Any], endpoint: str) -> DelayedMessage:
        """Its body is JSON: `func` ("module:function"), `args`, `kwargs`."""
        message_id, destination, due_time = self.identity(row, endpoint)
        return DelayedMessage(
            message_id=message_id,
            destination=destination,
            due_time=due_time,
            body=_body(row["job_state"]),
            properties=PROPERTIES,
        )

    @override
    def identity(self, row: Mapping[str, Any], endpoint: str) -> Identity:
        due_time: datetime = row["next_run_time"]
        return row["id"], self._destination, due_time

    @override
    def types(self) -> Mapping[str, TypeEngine[Any]]:
        return {"next_run_time": EpochSeconds()}


def _body(state: Any) -> bytes:
    """The body for a job_state; raises InvalidMessageError saying why it cannot be a message."""
    job, trigger = read_job(state)
    if trigger.name != DATE:
        found = trigger.name.rpartition(".")[2]
        raise RecurringError(f"it recurs, by {found}; try `delaystore migrate schedules --dry-run`")
    return body_of(job)


def read_job(state: Any) -> tuple[Mapping[str, Any], Foreign]:
    """A job_state, and the trigger in it. Raises InvalidMessageError for one that is no job."""
    if not isinstance(state, bytes | bytearray | memoryview):
        raise InvalidMessageError(f"its job_state is of the type {type(state).__name__}, not bytes")
    try:
        job = read_pickle(bytes(state))
    except InvalidMessageError as error:
        raise InvalidMessageError(f"its job_state cannot be read: {error}") from None
    if not isinstance(job, dict) or not isinstance(job.get("func"), str):
        raise InvalidMessageError("its job_state is no job of APScheduler 3")
    trigger = job.get("trigger")
    if not isinstance(trigger, Foreign):
        raise InvalidMessageError("its job_state has no trigger")
    return job, trigger


def body_of(job: Mapping[str, Any]) -> bytes:
    """The body that names a job's function and its arguments. Raises InvalidMessageError where JSON cannot."""
    call = {"func": job["func"], "args": job.get("args", ()), "kwargs": job.get("kwargs", {})}
    _check_plain(call)
    try:
        return json_text(call).encode()
    except UnicodeEncodeError:
        raise InvalidMessageError("its arguments hold text that cannot be written as UTF-8") from None


def _check_plain(call: Any) -> None:
    """Raise InvalidMessageError unless JSON can say all of `call`, and a reader finds it as it was.

    Tuples become lists.
    """
    left, values, size = [call], 1, 0
    while left:
        value = left.pop()
        size += _size(value)
        values += 2 * len(value) if isinstance(value, dict) else len(value) if isinstance(value, list | tuple) else 0
        if size > _LARGEST or values > _MOST_VALUES:
            raise InvalidMessageError("its arguments are too large, or hold themselves")
        if isinstance(value, dict):
            left.extend(value.keys())
            left.extend(value.values())
            if not all(isinstance(name, str) for name in value):
                raise InvalidMessageError("its arguments hold a dict whose keys are no text")
        elif isinstance(value, list | tuple):
            left.extend(value)
        elif not _is_plain(value):
            name = value.name if isinstance(value, Foreign) else type(value).__name__
            raise InvalidMessageError(f"its arguments hold a value of the type {name}, which JSON cannot carry")


def _size(value: Any) -> int:
    """The bytes of a value in JSON with the comma or colon behind it; of a list or a dict those of its brackets."""
    if isinstance(value, str):
        return len(_JSON.encode(value).encode(errors="surrogatepass")) + 1
    return len(repr(value)) + 1 if _is_plain(value) else 3


def _is_plain(value: Any) -> bool:
    """JSON has no NaN and no infinities, and its readers no longer integers."""
    if isinstance(value, float):
        return abs(value) < float("inf")
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and value.bit_length() <= 64)
