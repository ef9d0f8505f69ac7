"""A private RabbitMQ broker with an epmd of its own."""

import http.client
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.servers.certificates import Certificates
from tests.servers.errors import ServerFailedError
from tests.servers.ports import free_port
from tests.servers.programs import find_program
from tests.servers.server import Server
from tests.servers.vhosts import RabbitMQVhosts

# Debian's /usr/sbin/rabbitmq-server insists on the machine's own directories; the scripts it wraps do not.
PROGRAMS = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin")
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


@dataclass(frozen=True)
class Membership:
    """What the nodes of one cluster have in common: the administrator and the cookie."""

    user: str = "delaystore"
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    cookie: str = field(default_factory=lambda: secrets.token_hex(20))


class RabbitMQ(Server, RabbitMQVhosts):
    """A RabbitMQ broker of one node.

    `management` adds the HTTP API (`management_url`), which makes create_vhost() some ten times faster.
    `tls` adds a TLS listener that criteria a client certificate: `tls_url`, `certificates`.
    `membership`: None: of its own. `plugins`: enabled beside. `configuration`: more lines of rabbitmq.conf.
    """

    _account = "rabbitmq"

    def __init__(
        self,
        *,
        management: bool = False,
        tls: bool = False,
        membership: Membership | None = None,
        plugins: Sequence[str] = (),
        configuration: Sequence[str] = (),
    ) -> None:
        self._server = find_program("rabbitmq-server", *PROGRAMS)
        self._rabbitmqctl = str(Path(self._server).with_name("rabbitmqctl"))
        self.port, self.dist_port, self.epmd_port = free_port(), free_port(), free_port()
        self.management_port = free_port() if management else None
        self.tls_port = free_port() if tls else None
        self._membership = membership or Membership()
        self._user, self._password = self._membership.user, self._membership.password
        self._certificates: Certificates | None = None
        self._plugins = (*plugins, "rabbitmq_management") if management else tuple(plugins)
        self._more_configuration = tuple(configuration)
        Server.__init__(self)
        RabbitMQVhosts.__init__(
            self,
            f"amqp://{self._user}:{quote(self._password)}@127.0.0.1:{self.port}/",
            f"http://127.0.0.1:{self.management_port}" if management else None,
        )

    @property
    def tls_url(self) -> str:
        """The URL of the TLS listener, with the password."""
        if self.tls_port is None:
            raise ServerFailedError("this RabbitMQ was made without tls=True")
        return f"amqps://{self._user}:{quote(self._password)}@127.0.0.1:{self.tls_port}/"

    @property
    def certificates(self) -> Certificates:
        """The certificates' files; made at the first start."""
        if self._certificates is None:
            raise ServerFailedError("this RabbitMQ was made without tls=True, or has not been started")
        return self._certificates

    def ctl(self, *arguments: str) -> str:
        """What `rabbitmqctl ARGUMENTS` prints. Raises ServerFailedError if it fails; takes a second or two."""
        if not self.running:
            raise ServerFailedError("RabbitMQ is not running")
        return self._run([self._rabbitmqctl, "--node", self.node, "--quiet", *arguments], timeout=60)

    def alarm(self, resource: Literal["memory", "disk"]) -> None:
        """Have the broker think that it runs out of something: it reads no more from whoever publishes."""
        if resource == "memory":
            self.ctl("set_vm_memory_high_watermark", "0")
        else:
            self.ctl("set_disk_free_limit", str(10**15))

    def clear_alarms(self) -> None:
        """Undo alarm()."""
        self.ctl("set_vm_memory_high_watermark", "0.4")
        self.ctl("set_disk_free_limit", "50MB")

    @contextmanager
    def consumer_timeout(self, seconds: float) -> Iterator[None]:
        """While the block lasts, end channels opened in it that keep a message unacknowledged for longer."""
        self._time_out_consumers(seconds, look_every=0.5)
        try:
            yield
        finally:
            self._time_out_consumers(1800, look_every=60)  # as it is by default

    def _time_out_consumers(self, after: float, look_every: float) -> None:
        for name, seconds in (("consumer_timeout", after), ("channel_tick_interval", look_every)):
            self.ctl("eval", f"application:set_env(rabbit, {name}, {int(seconds * 1000)}).")

    def suspend_queue(self, url: str, queue: str) -> None:
        """Have the process behind a queue of `url`'s virtual host answer nothing, until resume_queue()."""
        self._call_queue("suspend", url, queue)

    def resume_queue(self, url: str, queue: str) -> None:
        """Undo suspend_queue()."""
        self._call_queue("resume", url, queue)

    def _call_queue(self, function: str, url: str, queue: str) -> None:
        name = f'rabbit_misc:r(<<"{self.vhost_name(url)}">>, queue, <<"{queue}">>)'
        process = "case amqqueue:get_pid(Queue) of {Name, _} -> Name; Pid -> Pid end"
        self.ctl("eval", f"{{ok, Queue}} = rabbit_amqqueue:lookup({name}), sys:{function}({process}).")

    def sync_queues(self) -> None:
        """Write to disk what the broker knows of its queues. Call it after declaring some, before kill().

        RabbitMQ 3.10 holds a new queue's definition, and a quorum queue's registration, in memory for some seconds:
        killed before they are written, it comes back without the queue, or with a quorum queue that has no leader
        or none of the messages it had confirmed. From 4.3 on Khepri keeps them, which has written what it has answered.
        """
        definitions = "case mnesia:system_info(is_running) of yes -> ok = mnesia:sync_log(); no -> ok end"
        self.ctl("eval", f"{definitions}, [ok = dets:sync(Table) || Table <- dets:all()].")

    def create_vhost(self) -> str:
        """Make an empty virtual host that the user of `url` may do anything in; its URL."""
        if self.management_port is not None:
            return super().create_vhost()
        name = self.new_vhost_name()
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "--vhost", name, self._user, ".*", ".*", ".*")
        return self.vhost_url(name)

    def delete_vhost(self, url: str) -> None:
        """Delete a virtual host that create_vhost() made, with its queues and connections."""
        if self.management_port is not None:
            super().delete_vhost(url)
        else:
            self.ctl("delete_vhost", self.vhost_name(url))

    def empty(self) -> None:
        """Delete every virtual host, and make the default one anew. Needs `management`."""
        vhosts = self.request("GET", "/api/vhosts")
        assert isinstance(vhosts, list)
        for vhost in vhosts:
            self.delete_vhost(self.vhost_url(vhost["name"]))
        self.add_vhost("/")

    @property
    def node(self) -> str:
        """The name that Erlang knows it by."""
        return f"delaystore{self.port}@localhost"

    def _prepare(self) -> None:
        if self.tls_port is not None:
            self._certificates = Certificates.create(self.directory)
            self._write("server-key.pem", self._certificates.server_key.read_text())
        self._write(".erlang.cookie", self._membership.cookie, mode=0o400)
        self._write("enabled_plugins", f"[{','.join(self._plugins)}].\n")
        self._write("rabbitmq.conf", "\n".join(self._configuration()) + "\n")

    def _configuration(self) -> list[str]:
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"default_user = {self._user}",
            f"default_pass = {self._password}",
            "disk_free_limit.absolute = 50MB",
            "max_message_size = 134217728",  # as before RabbitMQ 4
            *self._more_configuration,
        ]
        if self.management_port is not None:
            lines += ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {self.management_port}"]
        if self.tls_port is not None:
            files = self.certificates
            lines += [
                f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
                f"ssl_options.cacertfile = {files.ca_file}",
                f"ssl_options.certfile = {files.server_cert}",
                f"ssl_options.keyfile = {files.server_key}",
                "ssl_options.verify = verify_peer",
                "ssl_options.fail_if_no_peer_cert = true",
            ]
        return lines

    def _command(self) -> Sequence[str]:
        return [self._server]

    def _environment(self) -> dict[str, str]:
        directory = self.directory
        loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
        return {
            **super()._environment(),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            # files that do not exist, in place of the machine's
            "RABBITMQ_CONFIG_FILES": str(directory / "conf.d"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
            "RABBITMQ_SCHEDULER_BUSY_WAIT_THRESHOLD": "none",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
            "RABBITMQ_CTL_ERL_ARGS": f"-start_epmd false {loopback}",
        }

    def _answers(self) -> bool:
        return self._amqp_answers() and (self.management_port is None or self._management_answers())

    def _amqp_answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
                connection.sendall(PROTOCOL_HEADER)
                return connection.recv(1) == b"\x01"  # a method frame: connection.start
        except OSError:
            return False

    def _management_answers(self) -> bool:
        try:
            self.request("GET", "/api/vhosts")
        except (OSError, http.client.HTTPException, ServerFailedError):
            return False
        return True
