"""What is said of a cascade that must not be deleted, without a broker."""

import pickle

from delaystore.cascades import CASCADE, TopologyInUseError, Uses


def test_the_error_says_the_same_in_another_process() -> None:
    uses = Uses(counts={"level": 2, "other": None})
    error = TopologyInUseError(uses, CASCADE, " (just now)")
    assert str(error) == (
        "the cascade is not deleted: 2 messages are in 'level', and would be lost (just now); let them arrive, or pass "
        "--force"
    )
    copied = pickle.loads(pickle.dumps(error))
    assert str(copied) == str(error)
    assert copied.uses == uses
