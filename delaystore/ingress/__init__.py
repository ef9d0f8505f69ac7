"""Messages and requests that arrive by AMQP: the ingress, which stores messages, and the control queue.

`reading` makes a message of an incoming one, `topology` has the exchanges and queues on the broker, `control`
answers requests. An incoming message is acknowledged only after its commit.
May be changed freely: everything but the header forms in `reading` and the requests of `control`.
May import: the ground, `stores`, `transports`, `dispatcher`, `cascades`, `migrations.records`, `operations`,
`delivery`.
"""

__all__: list[str] = []
