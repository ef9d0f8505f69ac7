"""`delaystore load`."""
