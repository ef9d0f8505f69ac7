"""What need not be waited for."""

import threading
from collections.abc import Callable


def in_background(name: str, action: Callable[[], object]) -> None:
    """Call `action`, which may take its time, in a thread of its own; if none can be started, not at all."""
    try:
        threading.Thread(target=action, name=name, daemon=True).start()
    except RuntimeError:
        return
