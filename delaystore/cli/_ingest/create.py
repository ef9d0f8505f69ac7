"""`delaystore ingest create`."""

from typing import TYPE_CHECKING

import typer

from delaystore.cli._broker_options import BrokerUrl, DryRun, ManagementUrl
from delaystore.cli._broker_reports import finding_document
from delaystore.cli._ingest.options import (
    DefinitionsFile,
    EntranceType,
    Exchange,
    FromPlugin,
    NewName,
    Out,
    OutType,
    Queue,
    Replace,
    open_broker,
)
from delaystore.cli._ingest.planning import Plan, Wish, plan_for, plan_from
from delaystore.cli._ingest.reports import CreationReport
from delaystore.cli._options import Json
from delaystore.cli._output import print_document, say
from delaystore.errors import TransportSetupError
from delaystore.transports.rabbitmq.topology.layout import Part

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient, Creation, TopologyRefusedError


def create(
    context: typer.Context,
    exchange: Exchange,
    out_type: OutType = None,
    exchange_type: EntranceType = None,
    out: Out = None,
    queue: Queue = None,
    from_plugin: FromPlugin = False,
    new_name: NewName = None,
    definitions: DefinitionsFile = None,
    replace: Replace = False,
    dry_run: DryRun = False,
    broker: BrokerUrl = None,
    management: ManagementUrl = None,
    as_json: Json = False,
) -> None:
    """Declare what an ingress needs: E, the ingress queue, and OUT. May be run again.

    Programs publish to E, with a delay in a header. The ingress queue gets all of it. What is due is published to OUT,
    with the same routing key: bind your queues there. Checks everything first. Exit code 2: something differs, each
    difference is named, and nothing was changed.
    """
    wish = Wish(
        exchange=exchange,
        out_type=out_type,
        exchange_type=exchange_type,
        out=out,
        queue=queue,
        from_plugin=from_plugin,
        new_name=new_name,
        definitions=definitions,
        replace=replace,
    )
    report = _by_export(wish) if dry_run and not _broker_is_typed(context) else None
    if report is None:
        with open_broker(broker, management) as client:
            plan = plan_for(wish, client)
            try:
                report = CreationReport.of(plan, _created(client, plan, wish, dry_run), wish.replace, dry_run)
            except _refusals() as error:
                raise _told(error, dry_run, as_json) from None
            if not dry_run and _leads_nowhere(client, plan.topology.names.out):
                say(
                    f"caution: exchange {plan.topology.names.out!r} leads to no queue yet; bind your queues to it, or "
                    "what is due goes to the error queue"
                )
    report.print(as_json=as_json)


def _broker_is_typed(context: typer.Context) -> bool:
    """Whether the broker is an option of this command line, and not only in the environment, where it often is."""
    source = context.get_parameter_source("broker")
    return source is not None and source.name == "COMMANDLINE"


def _leads_nowhere(client: "BrokerClient", out: str) -> bool:
    """Whether no queue is behind `out`, as far as the management API tells."""
    return client.management is not None and not client.management.snapshot().queues_behind(out)


def _by_export(wish: Wish) -> CreationReport | None:
    """What would be done on the broker that an export was made of. None: there is no export."""
    exported = wish.exported(None)
    return None if exported is None else CreationReport.planned(plan_from(wish, exported), exported, wish.replace)


def _created(client: "BrokerClient", plan: Plan, wish: Wish, dry_run: bool) -> "Creation":
    from delaystore.ingress import topology as ingress
    from delaystore.transports.rabbitmq.declaring import declared_until_then

    declared: list[Part] = []
    try:
        if plan.switch is not None and wish.replace and not (plan.entrance or dry_run):
            return ingress.replace_exchange(client, plan.switch, declared.append)
        return ingress.create(
            client, plan.topology, entrance=plan.entrance, dry_run=dry_run, on_declared=declared.append
        )
    except KeyboardInterrupt:
        say(declared_until_then(declared))
        raise


def _refusals() -> "type[TopologyRefusedError]":
    from delaystore.cascades import TopologyRefusedError

    return TopologyRefusedError


def _told(error: "TopologyRefusedError", dry_run: bool, as_json: bool) -> TransportSetupError:
    """What remains to be said once each finding is told."""
    if as_json:
        findings = [finding_document(finding) for finding in error.findings]
        print_document({"dry_run": dry_run, "declared": 0, "findings": findings})
    elif len(error.findings) > 1:
        for finding in error.findings:
            say(f"{finding.kind}: {finding}")
        return TransportSetupError(f"{len(error.findings)} hindrances; nothing was declared")
    return error
