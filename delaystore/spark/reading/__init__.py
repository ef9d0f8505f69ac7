"""Reading what waits in a store."""
