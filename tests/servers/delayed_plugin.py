"""A broker with the delayed-message plugin, which no package has: scripts/build-delayed-plugin.sh compiles it."""

from pathlib import Path
from typing import Final

from typing_extensions import override

from tests.servers.rabbitmq import RabbitMQ

VARIABLE: Final = "DELAYSTORE_TEST_DELAYED_PLUGIN"
"""The environment variable that names the folder with the compiled plugin."""
PLUGIN: Final = "rabbitmq_delayed_message_exchange"


class RabbitMQWithPlugin(RabbitMQ):
    """A broker with the plugin.

    Args:
        folder: Where the plugin was compiled to.
        management: Whether it has the management API.

    """

    def __init__(self, folder: Path | str, *, management: bool = False) -> None:
        super().__init__(management=management, plugins=(PLUGIN,))
        self._folder = folder

    @override
    def _environment(self) -> dict[str, str]:
        own = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")) / "plugins"
        return {**super()._environment(), "RABBITMQ_PLUGINS_DIR": f"{own}:{self._folder}"}
