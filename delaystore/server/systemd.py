"""systemd: notifications of a running service, and the unit that starts it."""

import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from delaystore.errors import ConfigurationError
from delaystore.registry import needed_for
from delaystore.server.configuration.tree import parsed
from delaystore.server.configuration.values import Span
from delaystore.text import control_character

_LONGEST: Final = 500
"""Characters of a status."""


class Notifier:
    """Notifies the service manager that started this process, if one did.

    Raises MissingDependencyError where one did, and the library is missing.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._systemd: Any = None
        self._reported = ""
        if environment.get("NOTIFY_SOCKET"):
            with needed_for("a service of Type=notify"):
                from sdnotify import SystemdNotifier
            self._systemd = SystemdNotifier()
        self.watchdog: Final = _watchdog(environment)
        self.ready: Final = partial(self._notify, "READY=1")
        """It runs, or runs again after a reload."""
        self.stopping: Final = partial(self._notify, "STOPPING=1")
        """It ends."""

    def reloading(self) -> None:
        """It reads its configuration again; `ready` ends that."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def alive(self) -> None:
        """Report that the process lives; call it more often than the watchdog's interval."""
        if self.watchdog is not None:
            self._notify("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Report a line for `systemctl status`, if it has changed."""
        line = " ".join(text.split())[:_LONGEST]
        if line != self._reported:
            self._reported = line
            self._notify(f"STATUS={line}")

    def close(self) -> None:
        """Report nothing more."""
        if self._systemd is not None and self._systemd.socket is not None:
            self._systemd.socket.close()
        self._systemd = None

    def _notify(self, state: str) -> None:
        if self._systemd is not None:
            self._systemd.notify(state.encode().decode("latin-1"))  # the library encodes so; systemd reads UTF-8


def _watchdog(environment: Mapping[str, str]) -> float | None:
    """The seconds within which systemd wants to hear of this process; None: it does not."""
    time_given, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    mine = not process or process == str(os.getpid())
    return int(time_given) / 1e6 if mine and time_given.isdigit() and int(time_given) else None


_UNIT: Final = """\
[Unit]
Description=delaystore: delayed messages
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={command} serve --config {configuration}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
WatchdogSec=60
# longer than `drain`
TimeoutStopSec={stop}

# Secrets: in the configuration write store = "@${{CREDENTIALS_DIRECTORY}}/store".
{credentials}
{user}
StateDirectory=delaystore
WorkingDirectory=%S/delaystore
UMask=0077
LimitNOFILE=65536

NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome={home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged

[Install]
WantedBy=multi-user.target
"""
_CREDENTIAL: Final = re.compile(r"\$\{CREDENTIALS_DIRECTORY\}/([\w.-]+)")
_PLAIN_WORD: Final = re.compile(r"[\w@%$+=:,./~-]+")
_USUAL_SECRETS: Final = ["store", "transport"]
_MORE: Final = 30
"""Seconds that systemd waits beyond the time that the service has to end."""
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))
"""What ProtectHome= hides."""
_PRIVATE: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - compared, not written to # nosec B108
"""What PrivateTmp= hides."""


def unit_for(configuration: Path) -> str:
    """The unit's text, with the secrets that the file names and the time that it has to end; or the usual ones.

    If the file, or the program, is in a home directory, systemd leaves homes readable; if no other user may read it
    there, the unit runs as its owner.

    Raises ConfigurationError for a file that is there, and cannot be read, and for a path that no unit can have.
    """
    given = parsed(configuration) if configuration.exists() else {}
    named = sorted(set(_CREDENTIAL.findall(configuration.read_text()))) if given else _USUAL_SECRETS
    drain = Span().read(given.get("drain", "30s"))
    folder = configuration.absolute().parent
    needed = _needed(configuration)
    user = _user(needed)
    return _UNIT.format(
        command=_as_program(_command()),
        configuration=_as_argument(configuration.absolute()),
        credentials="\n".join(f"LoadCredential={name}:{_plain(folder / name)}" for name in named),
        home="read-only" if any(map(_is_at_home, needed)) else "yes",
        user="DynamicUser=yes" if user is None else f"User={user}",
        stop=f"{drain.total_seconds() + _MORE:.0f}",
    )


def obstacles(configuration: Path) -> Iterator[str]:
    """Why the unit could not be started as things lie, a sentence for each thing that it cannot read."""
    needed = _needed(configuration)
    user = _user(needed)
    hidden = {path for path in needed if path.exists() and any(map(path.is_relative_to, _PRIVATE))}
    closed = {path for path in needed if _is_closed(path) and _owner(path) != user} - hidden
    for path in _outermost(hidden):
        yield f"the unit has a /tmp of its own, and cannot see {path}; move it elsewhere"
    for path in _outermost(closed):
        yield f"the unit's user may not read {path}; let others read it (chmod o+r), once no secret is in it"


def _outermost(paths: Collection[Path]) -> Sequence[Path]:
    return sorted(path for path in paths if not set(path.parents) & set(paths))


def _command() -> Path:
    return Path(shutil.which("delaystore") or Path(sys.executable).parent / "delaystore").absolute()


def _needed(configuration: Path) -> list[Path]:
    """The files that the service reads, also targets of links."""
    given = (_command(), Path(sys.prefix), Path(sys.base_prefix), Path(__file__), configuration.absolute())
    return [each for path in given for each in (path, path.resolve())]


def _user(needed: Iterable[Path]) -> str | None:
    """As whom it runs; None: as a user that systemd makes."""
    return next((_owner(path) for path in needed if _is_at_home(path) and _is_closed(path)), None)


def _owner(path: Path) -> str:
    """The user's name; of a user without one the number."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)


def _is_at_home(path: Path) -> bool:
    return any(map(path.is_relative_to, _HOMES))


def _is_closed(path: Path) -> bool:
    """Whether it is there, and other users than its own may not read it."""
    if not path.exists():
        return False
    passed = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    return not (passed and path.stat().st_mode & stat.S_IROTH)


def _as_program(path: Path) -> str:
    """The first word of ExecStart=, in which `$` means itself. Raises ConfigurationError."""
    if set(str(path)) & set("\"'\\"):
        raise ConfigurationError(f"systemd runs no program whose path has a quote or a backslash; move {str(path)!r}")
    return _word(_plain(path))


def _as_argument(path: Path) -> str:
    """A later word of ExecStart=. Raises ConfigurationError."""
    return _word(_plain(path).replace("$", "$$"))


def _word(plain: str) -> str:
    """A word as systemd.syntax(7) quotes it."""
    if _PLAIN_WORD.fullmatch(plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(path: Path) -> str:
    """`path` as part of a line, unquoted: without specifiers, such as `%h`.

    Raises ConfigurationError where no line can have it.
    """
    text = str(path)
    if control_character(text) or not text.encode(errors="replace").decode() == text:
        raise ConfigurationError(
            f"a unit cannot name {text!r}, which has a control character or is no UTF-8; rename it"
        )
    return text.replace("%", "%%")
