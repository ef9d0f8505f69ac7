"""What systemd is told, on a real socket as its own."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from delaystore.server.systemd import Notifier
from tests.dispatching import wait_until
from tests.long import long
from tests.service.serving import endpoint, serving, write


class ServiceManager:
    """Receives what a service tells. `address`: for NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.told: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(0.1)
        self._ending = threading.Event()
        self._reader = threading.Thread(target=self._read, name="service manager")
        self._reader.start()

    def hears(self, state: str, *, after: int = 0) -> int:
        """Wait until it is told `state`, from the message number `after` on; the number of the next message."""
        wait_until(lambda: any(state in told for told in self.told[after:]), f"{state} in {self.told}")
        return next(at for at in range(after, len(self.told)) if state in self.told[at]) + 1

    def close(self) -> None:
        self._ending.set()
        self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        while not self._ending.is_set():
            try:
                self.told.append(self._socket.recv(65536).decode())
            except TimeoutError:
                continue


@pytest.fixture(params=["file", long("abstract")])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceManager]:
    name = tmp_path / "notify"
    manager = ServiceManager(str(name) if request.param == "file" else f"@delaystore-test-{name}")
    yield manager
    manager.close()


def test_a_service_tells_that_it_is_ready_lives_reloads_and_ends(
    manager: ServiceManager, sqlite_url: str, tmp_path: Path
) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "3000000"}
    with serving("--config", str(config), environment=environment) as service:
        after = manager.hears("READY=1")
        manager.hears("STATUS=ready")
        alive = manager.hears("WATCHDOG=1")
        manager.hears("WATCHDOG=1", after=alive)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        service.reload()
        after = manager.hears("RELOADING=1", after=after)
        reloading = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", manager.told[after - 1])
        assert reloading is not None
        assert before <= int(reloading.group(1)) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        after = manager.hears("READY=1", after=after)
        assert service.stop() == 0
        manager.hears("STOPPING=1", after=after)


def test_a_reload_that_fails_ends_as_well(manager: ServiceManager, sqlite_url: str, tmp_path: Path) -> None:
    config = write(tmp_path / "delaystore.toml", endpoint("sales", sqlite_url, sqlite_url))
    with serving("--config", str(config), environment={"NOTIFY_SOCKET": manager.address}) as service:
        after = manager.hears("READY=1")
        config.write_text("nonsense")
        assert service.reload().startswith("not reloaded")
        after = manager.hears("RELOADING=1", after=after)
        manager.hears("READY=1", after=after)
        assert not any("WATCHDOG" in told for told in manager.told)  # nobody asked for it
        assert service.stop() == 0


def test_why_it_is_not_ready_is_the_status_in_its_own_letters(manager: ServiceManager, sqlite_url: str) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "DELAYSTORE_ENDPOINT": "größe"}
    store = "postgresql+psycopg://127.0.0.1:1/app"
    with serving(
        *("--web", "127.0.0.1:0", "--store", store, "--transport", sqlite_url), environment=environment
    ) as service:
        manager.hears("READY=1")  # it runs, and waits for its servers
        manager.hears("STATUS=not ready: größe dispatcher: ")
        assert service.stop() == 0


def test_the_watchdog_of_another_process_is_not_told() -> None:
    assert Notifier({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}).watchdog is None
    assert Notifier({"WATCHDOG_USEC": "3000000"}).watchdog == 3.0
    assert Notifier({}).watchdog is None
