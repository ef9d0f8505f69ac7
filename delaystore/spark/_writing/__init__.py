"""Writers, for a DataFrame and for a stream: tasks stage, and the driver promotes what the winning attempts staged."""

from delaystore.spark._writing.batch import BatchWriter
from delaystore.spark._writing.stream import StreamWriter

__all__ = ["BatchWriter", "StreamWriter"]
