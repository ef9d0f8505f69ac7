"""Running migrations: preview, run, abort, verify, clean up."""

from delaystore.migrations.runner.aborting import abort
from delaystore.migrations.runner.cleaning import clean_up
from delaystore.migrations.runner.previewing import Examination, examine
from delaystore.migrations.runner.progress import Listener, Quiet
from delaystore.migrations.runner.running import run
from delaystore.migrations.runner.settings import RunSettings
from delaystore.migrations.runner.verifying import Verdict, verify

__all__ = [
    "Examination",
    "Listener",
    "Quiet",
    "RunSettings",
    "Verdict",
    "abort",
    "clean_up",
    "examine",
    "run",
    "verify",
]
