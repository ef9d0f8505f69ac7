"""The command line in forks of one process that has imported it: a command of a page costs no second of imports.

A shell that has `commands_folder()` first in its PATH finds a `delaystore` there (`asking.py`), which has its
arguments, environment, folder, streams and signals taken over by a fork of `serving.py`. Tests of what a process itself
does, such as its start, its kill or what it imports, start `python -m delaystore.cli` instead.
"""
