"""A broker that looks as if it had the delayed-message plugin, which no package of RabbitMQ has.

Its exchanges are real ones of their inner type, with the plugin's argument. The management API in front of the real one
shows them as RabbitMQ with the plugin does; see tests/recorded.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.integration.ingress_brokers import Broker

RECORDED = Path(__file__).parents[1] / "recorded"
INNER_TYPE = "x-delayed-type"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


@contextmanager
def plugin_management(real: str, waiting: int = 0) -> Iterator[str]:
    """The URL of a management API that passes all on to `real`, and shows the stand-ins as exchanges of the plugin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            connection = http.client.HTTPConnection(urlsplit(real).netloc, timeout=30)
            length = int(self.headers.get("Content-Length") or 0)
            plain = {name: value for name, value in self.headers.items() if name != "Accept-Encoding"}
            connection.request(self.command, self.path, self.rfile.read(length), plain)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if self.path.startswith("/api/exchanges/") and answer.status == http.HTTPStatus.OK:
                content = json.dumps([_shown(one, waiting) for one in json.loads(content)]).encode()
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
    return {**exchange, "type": "x-delayed-message", "messages_delayed": waiting}


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
