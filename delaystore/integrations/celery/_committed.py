"""What is done once the caller's transaction is committed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

_OF_SESSION: Final = "delaystore_celery_committed"
"""The key in Session.info of what waits for its commit; one pair of listeners per session serves them all."""


def once_committed(target: Any, action: Callable[[], None]) -> None:
    """Call `action` after the outermost commit of `target`, which `DelayedDelivery.enlist` takes.

    Never, where it is rolled back, and where nobody is told of a commit: by SQLAlchemy's or a driver's connection.
    `action` must not raise.
    """
    session = target() if isinstance(target, scoped_session) else target
    if isinstance(session, Session):
        _of(session).actions.append(action)
    elif hasattr(target, "on_commit") and getattr(target, "in_atomic_block", True):  # Django's connection; tests' own
        target.on_commit(action)


@dataclass
class _Waiting:
    actions: list[Callable[[], None]] = field(default_factory=list)
    committed: bool = False


def _of(session: Session) -> _Waiting:
    if _OF_SESSION not in session.info:
        session.info[_OF_SESSION] = _Waiting()
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_transaction_end", _ended)
    waiting: _Waiting = session.info[_OF_SESSION]
    return waiting


def _committed(session: Session) -> None:
    _of(session).committed = not session.in_nested_transaction()


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """By now the session has given its connection back, which may be the pool's last one."""
    if transaction.parent is None:
        waiting, session.info[_OF_SESSION] = _of(session), _Waiting()
        for action in waiting.actions if waiting.committed else ():
            action()
