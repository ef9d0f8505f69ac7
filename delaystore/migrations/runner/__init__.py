"""Running migrations: check, run, abort, verify, clean up."""

from delaystore.migrations.runner._running import RunSettings, abort, run
from delaystore.migrations.runner._verifying import RunCheck, RunVerification, check, clean_up, verify

__all__ = ["RunCheck", "RunSettings", "RunVerification", "abort", "check", "clean_up", "run", "verify"]
