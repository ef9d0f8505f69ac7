"""Where something listens."""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from typing_extensions import override

from delaystore.service.configuration.kinds import Kind

_MAX_PORT: Final = 65535
_ADDRESS: Final = re.compile(r"(?:\[(?P<inner>[^\[\]]+)\]|(?P<host>[^\[\]\s/:@\x00-\x1f]+)):(?P<port>[0-9]{1,5})")
"""A name or an address, and a port; addresses of IPv6 stand in brackets, as otherwise the port might be theirs."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens. `port` 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listen(Kind[Address]):
    """HOST:PORT, also [::1]:9464."""

    wanted = "HOST:PORT, as in 127.0.0.1:9464"

    @override
    def read(self, given: object) -> Address:
        if not isinstance(given, str):
            raise self.refusal(given)
        found = _ADDRESS.fullmatch(given.strip())
        if found is None or int(found["port"]) > _MAX_PORT or not _can_be(found["inner"]):
            raise self.refusal(given)
        return Address(found["inner"] or found["host"], int(found["port"]))

    @override
    def shown(self, value: Address) -> str:
        return str(value)


def _can_be(address: str | None) -> bool:
    """Whether an address of IPv6 can be so; None: there is none."""
    try:
        return address is None or bool(str(IPv6Address(address)))
    except ValueError:
        return False
