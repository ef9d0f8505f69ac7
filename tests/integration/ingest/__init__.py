"""The commands of `delaystore ingest` that are about a topology, on a real broker."""
