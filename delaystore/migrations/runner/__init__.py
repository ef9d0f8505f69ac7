"""Running migrations: check, run, abort, verify, clean up."""

from delaystore.migrations.runner._checking import RunCheck, check
from delaystore.migrations.runner._running import abort, run
from delaystore.migrations.runner._settings import RunSettings
from delaystore.migrations.runner._verifying import Verification, clean_up, verify

__all__ = ["RunCheck", "RunSettings", "Verification", "abort", "check", "clean_up", "run", "verify"]
