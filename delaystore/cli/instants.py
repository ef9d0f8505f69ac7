"""Points in time as people write them."""

from datetime import datetime

from delaystore.errors import ConfigurationError


def parse_instant(text: str, option: str) -> datetime:
    """An ISO 8601 date and time with its offset; ConfigurationError naming `option` for anything else."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(f"{option} {text!r} is no ISO 8601 time; write 2027-01-31T09:00:00+01:00") from None
    if instant.utcoffset() is None:
        plain = instant.isoformat()
        raise ConfigurationError(
            f"{option} {text!r} has no time zone; add an offset, as in {plain}Z (UTC) or {plain}+01:00"
        )
    return instant
