"""What is said of a cascade that must not be deleted, without a broker."""

import pickle

from delaystore.cascades import DeletionCheck, MessagesWaitError


def test_the_error_says_the_same_in_another_process() -> None:
    check = DeletionCheck(parts=(), waiting={"level": 2}, destinations=())
    error = MessagesWaitError(check, " (they arrived just now)")
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error)
    assert copied.check == check
