"""`delaystore web`."""

import sys
from functools import partial
from typing import Annotated

import typer

from delaystore.cli._logging import log_to_standard_error
from delaystore.cli._options import (
    DEFAULT_ERROR_QUEUE,
    Endpoint,
    Schema,
    StoreUrl,
    Table,
    TransportUrl,
    environment_option,
    error_queue_option,
    url_option,
)
from delaystore.cli._output import say, tell
from delaystore.cli._signals import stop_requests
from delaystore.errors import ConfigurationError


def web(
    host: Annotated[str, environment_option("--host", "The address to listen to.", group="web", metavar="HOST")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="NUMBER", help="The port to listen to; 0: any that is free.")
    ] = 8765,
    show_bodies: Annotated[bool, typer.Option("--show-bodies", help="Show what is in messages.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Let nobody change anything.")] = False,
    management: Annotated[
        str | None,
        url_option("--management", "The management API, for the cascade: http[s]://[user:password@]host:15672."),
    ] = None,
    cascade: Annotated[
        str | None,
        environment_option("--cascade", "Show this cascade of --transport, as in nservicebus-v2.", metavar="NAME"),
    ] = None,
    hash_password: Annotated[
        bool, typer.Option("--hash-password", help="Ask for a password, print its hash for DELAYSTORE_WEB_USERS, end.")
    ] = False,
    store: StoreUrl = None,
    endpoint: Endpoint = None,
    schema: Schema = None,
    table: Table = None,
    transport: TransportUrl = None,
    error_queue: Annotated[str, error_queue_option("The error queue that it shows.", "web")] = DEFAULT_ERROR_QUEUE,
) -> None:
    """Serve the web page, and the JSON API at /api/v1.

    Only this machine is let in, unless DELAYSTORE_WEB_USERS names users: NAME:ROLE:PASSWORD, separated by white space,
    or @FILE; the role is read or operate. DELAYSTORE_WEB_TOKENS, TOKEN:ROLE, lets programs in. With --transport it
    shows and replays the error queue; it dispatches nothing, and creates no table and no file.
    """
    if hash_password:
        _print_hash()
        return
    from delaystore.cli._endpoint import EndpointOptions, reading
    from delaystore.web import Cascade, app
    from delaystore.web.serving import PageServer, address_of, listening
    from delaystore.web.users import accounts_from_environment

    options = EndpointOptions(store=store, endpoint=endpoint, schema=schema, table=table, transport=transport)
    shown = None
    if cascade is not None or management is not None:
        if transport is None or not transport.startswith("amqp"):
            raise ConfigurationError("--cascade and --management go with a --transport of amqp:// or amqps://")
        shown = Cascade(broker=transport, management=management, name=cascade or "nservicebus-v2")
    protected = bool(accounts_from_environment())
    with options.open(reading(error_queue)) as opened, listening(host, port, protected=protected) as listener:
        application = app(opened.delivery, show_bodies=show_bodies, read_only=read_only, cascade=shown)
        ready = partial(say, f"serving {address_of(listener)} (Ctrl-C ends it)")
        log_to_standard_error()
        server = PageServer(application, listener, ready, application.state.site.stop)
        with stop_requests(also=server.stop):
            server.serve_until_stopped()
    say("stopped")


def _print_hash() -> None:
    from getpass import getpass

    from delaystore.web.users import hashed

    if sys.stdin is not None and sys.stdin.isatty():
        password = getpass("Password: ")
        if getpass("Again: ") != password:
            raise ConfigurationError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise ConfigurationError("the password is empty")
    tell(hashed(password))
