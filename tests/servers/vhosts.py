"""Virtual hosts of one's own on any RabbitMQ broker whose management API can be reached."""

import base64
import http.client
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tests.servers.errors import ServerFailedError


class RabbitMQVhosts:
    """Makes and deletes virtual hosts; `url` is an `amqp://` URL whose user is an administrator."""

    def __init__(self, url: str, management_url: str | None) -> None:
        self._url = url
        self.management_url = management_url

    @property
    def url(self) -> str:
        """The URL of the default virtual host, with the password."""
        return self._url

    def create_vhost(self) -> str:
        """Make an empty virtual host that the user of `url` may do anything in; its URL."""
        name = self.new_vhost_name()
        self.add_vhost(name)
        return self.vhost_url(name)

    def add_vhost(self, name: str) -> None:
        """Make an empty virtual host of this name."""
        user = urlsplit(self._url).username or ""
        path = quote(name, safe="")
        self.request("PUT", f"/api/vhosts/{path}")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.request("PUT", f"/api/permissions/{path}/{user}", everything)

    def delete_vhost(self, url: str) -> None:
        """Delete a virtual host that create_vhost() made, with its queues and connections."""
        self.request("DELETE", f"/api/vhosts/{quote(self.vhost_name(url), safe='')}")

    @contextmanager
    def user(self, url: str, *, configure: str = "", write: str = "", read: str = "", tags: str = "") -> Iterator[str]:
        """A user with these rights (regular expressions) in the virtual host of `url`; yields `url` for that user."""
        name, password = f"delaystore-{secrets.token_hex(6)}", secrets.token_urlsafe(12)
        rights = {"configure": configure, "write": write, "read": read}
        self.request("PUT", f"/api/users/{name}", {"password": password, "tags": tags})
        try:
            self.request("PUT", f"/api/permissions/{quote(self.vhost_name(url), safe='')}/{name}", rights)
            parts = urlsplit(url)
            yield urlunsplit(parts._replace(netloc=f"{name}:{password}@{parts.hostname}:{parts.port}"))
        finally:
            self.request("DELETE", f"/api/users/{name}")

    def request(self, method: str, path: str, body: object = None) -> object:
        """Ask the management API; the decoded answer, or None. Raises ServerFailedError unless it says 2xx."""
        if self.management_url is None:
            raise ServerFailedError("this RabbitMQ has no management API")
        connection = http.client.HTTPConnection(urlsplit(self.management_url).netloc, timeout=30)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, self._headers())
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status // 100 != 2:
            raise ServerFailedError(f"{method} {path}: {answer.status} {answer.reason}")
        return json.loads(content) if content else None

    def vhost_url(self, name: str) -> str:
        """The URL of the virtual host `name`."""
        return f"{self._url.rsplit('/', 1)[0]}/{quote(name, safe='')}"

    @staticmethod
    def vhost_name(url: str) -> str:
        """The virtual host that a URL names."""
        return unquote(urlsplit(url).path.removeprefix("/"))

    @staticmethod
    def new_vhost_name() -> str:
        """A name that is not in use."""
        return f"delaystore-{secrets.token_hex(6)}"

    def _headers(self) -> dict[str, str]:
        parts = urlsplit(self._url)
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        return {
            "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
            "Content-Type": "application/json",
        }
