"""Files of messages, loaded by Spark."""
