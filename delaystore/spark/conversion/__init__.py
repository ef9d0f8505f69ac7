"""From the rows that people have to messages."""
