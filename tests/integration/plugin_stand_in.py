"""A broker that looks as if it had the delayed-message plugin, which no package of RabbitMQ has.

Its exchanges are real ones of their inner type, with the plugin's argument. The management API in front of the real one
shows them as RabbitMQ with the plugin does; see tests/recorded.
"""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.integration.ingress_brokers import Broker

RECORDED = Path(__file__).parents[1] / "recorded"
INNER_TYPE = "x-delayed-type"
PLUGIN_TYPE = "x-delayed-message"
_DEFINITIONS = "/api/definitions/"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


@contextmanager
def plugin_management(real: str, waiting: Callable[[], int] = lambda: 0) -> Iterator[str]:
    """The URL of a management API that passes all on to `real`, and shows the stand-ins as exchanges of the plugin.

    An import of such exchanges declares stand-ins. `waiting`: how many messages wait in each.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer, content = self._asked()
            if answer.status == http.HTTPStatus.OK:
                content = self._shown(content)
            self._answer(answer, content)

        def do_DELETE(self) -> None:
            self._answer(*self._asked())

        def do_POST(self) -> None:
            self._answer(*self._asked(_imported if self.path.startswith(_DEFINITIONS) else bytes))

        def _asked(self, change: Callable[[bytes], bytes] = bytes) -> tuple[http.client.HTTPResponse, bytes]:
            connection = http.client.HTTPConnection(urlsplit(real).netloc, timeout=30)
            content = change(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            dropped = ("accept-encoding", "content-length")
            plain = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            connection.request(self.command, self.path, content, plain)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer, body

        def _shown(self, content: bytes) -> bytes:
            if self.path.startswith("/api/exchanges/"):
                return json.dumps([_shown(one, waiting()) for one in json.loads(content)]).encode()
            if self.path.startswith(_DEFINITIONS):
                return _exported(content)
            return content

        def _answer(self, answer: http.client.HTTPResponse, content: bytes) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _shown(exchange: dict[str, Any], waiting: int) -> dict[str, Any]:
    if INNER_TYPE not in exchange["arguments"]:
        return exchange
    return {**exchange, "type": PLUGIN_TYPE, "messages_delayed": waiting}


def _exported(content: bytes) -> bytes:
    document = json.loads(content)
    for one in document["exchanges"]:
        if INNER_TYPE in one["arguments"]:
            one["type"] = PLUGIN_TYPE
    return json.dumps(document).encode()


def _imported(content: bytes) -> bytes:
    document = json.loads(content)
    for one in document["exchanges"]:
        one["type"] = _real_type(one)
    return json.dumps(document).encode()


def declare_shop(broker: Broker) -> None:
    """All that was in the virtual host that was recorded, as stand-ins where it takes the plugin."""
    shop = recorded("plugin_definitions.json")
    with broker.channel() as channel:
        for one in shop["exchanges"]:
            channel.exchange_declare(
                one["name"], _real_type(one), durable=True, auto_delete=one["auto_delete"], arguments=one["arguments"]
            )
        for one in shop["queues"]:
            channel.queue_declare(one["name"], durable=True, arguments={"x-queue-type": "quorum"})
        for one in shop["bindings"]:
            bind = channel.queue_bind if one["destination_type"] == "queue" else channel.exchange_bind
            bind(one["destination"], one["source"], one["routing_key"], one["arguments"])


def _real_type(exchange: Mapping[str, Any]) -> str:
    return str(exchange["arguments"].get(INNER_TYPE, exchange["type"]))
