"""What need not be waited for."""

import threading
from collections.abc import Callable


def in_background(name: str, action: Callable[[], object]) -> bool:
    """Call `action`, which may take its time, in a thread of its own; False: none can be started."""
    try:
        threading.Thread(target=action, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True
