"""How tests start Java."""

from typing import Final

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a Java that runs for seconds: not worth a compiler and a collector that take their time."""
