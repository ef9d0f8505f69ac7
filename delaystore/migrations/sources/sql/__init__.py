"""Messages in the tables of a SQL database."""
