"""Whatever needs more than one node of a server. All of it runs in one process, whose servers it shares."""
