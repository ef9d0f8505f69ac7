"""A private RabbitMQ cluster, which can be parted."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import pika

from tests.servers.errors import ServerFailedError
from tests.servers.rabbitmq import Membership, RabbitMQ
from tests.servers.server import START_SECONDS
from tests.servers.wires import Endpoint, Wires

PartitionHandling = Literal["ignore", "pause_minority", "autoheal"]

# The nodes that each node takes to be up, in all.
_KNOWN: Final = "lists:sum([length(rpc:call(Node, rabbit_nodes, all_running, [])) || Node <- [node() | nodes()]])."
# RabbitMQ 4.3 has no partitions that nodes remember.
_PARTITIONED: Final = """
erlang:function_exported(rabbit_node_monitor, partitions, 1) andalso
lists:any(fun({_, Unknown}) -> Unknown =/= [] end, rabbit_node_monitor:partitions([node() | nodes()])).
"""
_LEADER: Final = """
{{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)),
{{Name, _}} = amqqueue:get_pid(Queue),
case ra_leaderboard:lookup_leader(Name) of {{_, Node}} -> Node; _ -> undefined end.
"""


class RabbitMQNode(RabbitMQ):
    """One node. It joins the node named `seed` at its first start; None: it is the first one."""

    def __init__(self, membership: Membership, seed: str | None, settings: Sequence[str], *, management: bool) -> None:
        super().__init__(management=management, membership=membership)
        self._seed = seed
        self._settings = settings

    @property
    def endpoint(self) -> Endpoint:
        """Where the other nodes find it, and where it asks for them."""
        return Endpoint(self.node.partition("@")[0], self.dist_port, self.epmd_port)

    def start(self) -> None:
        """Start the node and wait until it answers. One that fails beside another that starts, is started again."""
        try:
            super().start()
        except ServerFailedError:
            super().start()

    def _configuration(self) -> list[str]:
        return [*super()._configuration(), *self._discovery(), *self._settings]

    def _discovery(self) -> list[str]:
        if self._seed is None:
            return []
        names = enumerate((self._seed, self.node), start=1)
        return [
            "cluster_formation.peer_discovery_backend = classic_config",
            *(f"cluster_formation.classic_config.nodes.{number} = {name}" for number, name in names),
        ]

    def _environment(self) -> dict[str, str]:
        environment = super()._environment()
        few_threads = "+S 1:1 +SDio 2 +A 2"
        more = f"-start_epmd false {environment['RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS']} {few_threads}"
        return {**environment, "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": more}


class RabbitMQCluster:
    """Nodes that form one cluster; each of `nodes` can be killed, paused, stopped and started. A context manager.

    `partition_handling`: RabbitMQ's `cluster_partition_handling`; `net_ticktime`: seconds after which a node that is
    silent is taken to be down (RabbitMQ's default is 60). Users and virtual hosts are the same on all nodes.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        partition_handling: PartitionHandling = "ignore",
        net_ticktime: int = 60,
        management: bool = True,
    ) -> None:
        membership = Membership()
        settings = [f"cluster_partition_handling = {partition_handling}", f"net_ticktime = {net_ticktime}"]
        first = RabbitMQNode(membership, None, settings, management=management)
        others = [RabbitMQNode(membership, first.node, settings, management=management) for _ in range(nodes - 1)]
        self.nodes: Final[Sequence[RabbitMQNode]] = (first, *others)
        self._wires = Wires([node.endpoint for node in self.nodes])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the default virtual host at the first node, with the password."""
        return self.nodes[0].url

    def urls(self, vhost_url: str | None = None) -> list[str]:
        """The URL of a virtual host at each node; None: the default one."""
        path = urlsplit(vhost_url or self.url).path
        return [urlsplit(node.url)._replace(path=path).geturl() for node in self.nodes]

    def url_of_all(self, vhost_url: str | None = None) -> str:
        """One URL that names all nodes: `amqp://user:password@host:port,host:port/vhost`."""
        first, *others = [urlsplit(url) for url in self.urls(vhost_url)]
        hosts = ",".join([first.netloc, *(f"{other.hostname}:{other.port}" for other in others)])
        return first._replace(netloc=hosts).geturl()

    def create_vhost(self) -> str:
        """Make an empty virtual host; its URL at the first node."""
        url = self._running_node().create_vhost()
        return self.urls(url)[0]

    def delete_vhost(self, url: str) -> None:
        """Delete a virtual host that create_vhost() made, with its queues and connections."""
        self._running_node().delete_vhost(url)

    def declare_quorum_queue(self, vhost_url: str, name: str, leader: int = 0, **arguments: Any) -> None:
        """Declare a durable quorum queue with a member on each node; the node of index `leader` leads it."""
        self._declare(vhost_url, name, leader, {"x-queue-type": "quorum", **arguments})

    def declare_classic_queue(self, vhost_url: str, name: str, home: int = 0, **arguments: Any) -> None:
        """Declare a durable classic queue, which lives on the node of index `home` alone."""
        self._declare(vhost_url, name, home, {"x-queue-type": "classic", **arguments})

    def leader_of(self, vhost_url: str, queue: str) -> int | None:
        """The index of the node that leads a quorum queue, as most running nodes say; None: it does not run."""
        question = _LEADER.format(vhost=self.nodes[0].vhost_name(vhost_url), queue=queue)
        answers = [node.ctl("eval", question).strip().strip("'") for node in self._running()]
        leader = max(answers, key=answers.count)
        running = [index for index, node in enumerate(self.nodes) if node.running and node.node == leader]
        return running[0] if running else None

    def knows(self, node: int) -> bool:
        """Whether the other nodes that run take the one of this index to be up."""
        return self.nodes[node].node in self._running_node().ctl("eval", "rabbit_nodes:all_running().")

    def partitioned(self) -> bool:
        """Whether a node knows of a partition; by default such nodes stay apart until they are restarted."""
        return self._running_node().ctl("eval", _PARTITIONED).strip() == "true"

    def part(self, *nodes: int) -> None:
        """Let nothing pass between these nodes, by index, and the others, until heal(). Clients reach all of them."""
        within = [self.nodes[index] for index in nodes]
        for one in within:
            for other in set(self.nodes) - set(within):
                self._wires.hold(one.endpoint, other.endpoint)

    def heal(self) -> None:
        """Undo part(). Whether the nodes come together again is theirs: see `partition_handling`."""
        self._wires.heal()

    def sync_queues(self) -> None:
        """RabbitMQ.sync_queues() on each node."""
        _each(self._running(), RabbitMQ.sync_queues)

    def start(self) -> None:
        """Start the nodes that do not run, and wait until they answer."""
        self._wires.start()
        if not self.nodes[0].was_started:
            self.nodes[0].start()  # the others join it
        if stopped := [node for node in self.nodes if not node.running]:
            _each(stopped, RabbitMQNode.start)
            self._await_acquaintance(time.monotonic() + START_SECONDS)

    def restore(self) -> None:
        """Make it whole again: every node runs and knows the others."""
        self.heal()
        self.resume()
        self.start()
        deadline = time.monotonic() + START_SECONDS
        while self.partitioned() or not self._acquainted():
            if self.partitioned() or time.monotonic() > deadline:
                self.kill()
                self.start()

    def stop(self) -> None:
        """Shut all nodes down cleanly."""
        _each(self.nodes, RabbitMQ.stop)

    def kill(self) -> None:
        """SIGKILL all nodes."""
        _each(self.nodes, RabbitMQ.kill)

    def pause(self) -> None:
        """SIGSTOP all nodes."""
        _each(self.nodes, RabbitMQ.pause)

    def resume(self) -> None:
        """Undo pause(), of the cluster or of a node."""
        _each(self.nodes, RabbitMQ.resume)

    def close(self) -> None:
        """End the nodes and remove their directories. May be called twice."""
        try:
            _each(self.nodes, RabbitMQ.close)
        finally:
            self._wires.close()

    def _declare(self, vhost_url: str, name: str, node: int, arguments: dict[str, Any]) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.urls(vhost_url)[node])) as connection:
            connection.channel().queue_declare(name, durable=True, arguments=arguments)

    def _await_acquaintance(self, deadline: float) -> None:
        """Nodes answer before they know each other, when one is not told of a virtual host that another makes."""
        while not self._acquainted():
            if time.monotonic() > deadline:
                raise ServerFailedError(f"the nodes do not know each other\n{self.nodes[0].ctl('cluster_status')}")

    def _acquainted(self) -> bool:
        """Whether each node that runs knows the others that do."""
        running = self._running()
        return int(running[0].ctl("eval", _KNOWN)) >= len(running) ** 2

    def _running(self) -> list[RabbitMQNode]:
        return [node for node in self.nodes if node.running and not node.paused]

    def _running_node(self) -> RabbitMQNode:
        if not (running := self._running()):
            raise ServerFailedError("no node of the cluster runs")
        return running[0]


def _each(nodes: Iterable[RabbitMQNode], act: Callable[[RabbitMQNode], None]) -> None:
    """Do something to all nodes at once; the first error is raised when all have finished."""
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(act, node) for node in nodes]
    for one in done:
        one.result()
