"""Where something listens."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from delaystore.service.configuration.kinds import Kind

_MAX_PORT: Final = 65535


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
        host, colon, port = given.strip().rpartition(":")
        if not colon or not host.strip("[]") or not (port.isascii() and port.isdigit()) or int(port) > _MAX_PORT:
            raise self.refusal(given)
        return Address(host.removeprefix("[").removesuffix("]"), int(port))

    @override
    def shown(self, value: Address) -> str:
        return str(value)
