"""`delaystore ingest`: create, verify and delete the exchanges and queues of an ingress on the broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._broker import (
    BrokerOptions,
    DryRun,
    ask_whether_to_delete,
    deletion_document,
    finding_document,
    part_document,
    print_verification,
    say_obstacle,
    say_unchecked,
    tell_deleted,
    tell_planned,
    telling_what_is_deleted,
)
from delaystore.cli._commands import add_commands, command_group
from delaystore.cli._ingest_options import (
    CreateOptions,
    CreatePlan,
    NameOptions,
    ToCreate,
    TypedNames,
    plan_for,
    plan_from,
)
from delaystore.cli._ingest_run import retry, run, status
from delaystore.cli._options import Json, environment_option
from delaystore.cli._output import print_document, say, tell
from delaystore.errors import TransportSetupError
from delaystore.text import counted
from delaystore.transports.rabbitmq.topology import layout
from delaystore.transports.rabbitmq.topology.layout import Part

if TYPE_CHECKING:
    from delaystore.cascades import (
        BrokerClient,
        BrokerSnapshot,
        Creation,
        Deletion,
        DeletionCheck,
        TopologyRefusedError,
    )


def delete(
    *,
    which: NameOptions,
    delete_output_exchange: Annotated[
        bool,
        environment_option(
            "--delete-output-exchange",
            "Delete the output exchange, too, although queues are bound to it.",
            group="ingest_delete",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete although messages are in it: they are lost. Also with consumers.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    on: BrokerOptions,
    as_json: Json = False,
) -> None:
    """Delete an ingress: E, its queues, and the output exchange where nothing is bound to it.

    Refuses while one of the queues has messages or consumers. E stays where other queues are bound to it.
    Needs the management API, which alone counts every message. It checks twice, six seconds apart, since the broker's
    counts can be that old. Exit code 1: refused, and nothing was deleted.
    """
    from delaystore.cascades import STATISTICS_AGE, TopologyInUseError
    from delaystore.ingress import topology as ingress

    names = which.names()
    with on.open("delaystore ingest") as client:
        found = ingress.check_deletion(client, names, with_output=delete_output_exchange)
        refused = found.uses.certain is not None and not force
        if dry_run or refused:
            _print_check(found, which.exchange, dry_run, as_json)
            raise typer.Exit(1 if refused else 0)
        _confirm(found, f"{which.exchange!r} on {client.label}", yes)
        if found.queues and not force:
            say(f"checking again in {STATISTICS_AGE:g} s: the broker's counts may be that old")
        deleted: list[layout.Exchange | layout.Queue] = []
        try:
            with telling_what_is_deleted(deleted):
                deletion = ingress.delete(
                    client, names, with_output=delete_output_exchange, force=force, on_deleted=deleted.append
                )
        except TopologyInUseError as error:
            say(str(error))
            raise typer.Exit(1) from None
    _print_deletion(deletion, which.exchange, as_json)


def _confirm(found: "DeletionCheck", what: str, yes: bool) -> None:
    if not found.parts:
        return
    for binding in found.cut_off:
        say(f"caution: {binding} is deleted, too")
    if not yes:
        lost = f"; {found.uses.obstacle}" if found.uses.obstacle else ""
        ask_whether_to_delete(f"Delete {what}, {counted(len(found.parts), 'part')}{lost}?")


def _print_check(found: "DeletionCheck", exchange: str, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_document({"exchange": exchange, "dry_run": dry_run, "deleted": [], **_document(found)})
        return
    if dry_run:
        tell_planned(found.parts)
        for binding in found.cut_off:
            say(f"caution: {binding} would be deleted, too")
        for sentence in found.kept:
            say(sentence)
    say_obstacle(found.uses.certain)


def _print_deletion(deletion: "Deletion[DeletionCheck]", exchange: str, as_json: bool) -> None:
    if as_json:
        print_document({"exchange": exchange, **deletion_document(deletion), **_document(deletion.check)})
    else:
        tell_deleted(deletion, what=f"ingress for {exchange!r}", kept=deletion.check.kept)


def _document(found: "DeletionCheck") -> dict[str, Any]:
    return {
        "parts": [part_document(part) for part in found.parts],
        "kept": list(found.kept),
        "waiting": dict(found.uses.messages),
        "consumers": dict(found.uses.consumers),
        "obstacle": found.uses.obstacle,
        "cut_off": [part_document(binding) for binding in found.cut_off],
    }


def verify(
    *,
    which: TypedNames,
    passive: Annotated[
        bool, typer.Option("--passive", help="This user may not declare: leave its permissions out.")
    ] = False,
    on: BrokerOptions,
    as_json: Json = False,
) -> None:
    """Verify that a broker has an ingress as it should be. Changes nothing.

    Names what is wrong with the broker, the user's permissions, each exchange, queue and binding; bindings that lead
    around the delay; and policies that harm. Without a type, the exchanges may have any that fits. Names what could not
    be checked, too: that is more without the management API. Exit code 1: something is wrong.
    """
    from delaystore.ingress import topology as ingress

    names = which.names()
    with on.open("delaystore ingest") as client:
        found = ingress.verify(
            client,
            names,
            out_type=None if which.out_type is None else which.out_type.value,
            exchange_type=which.exchange_type_name,
            passive=passive,
        )
    print_verification(found, repr(which.exchange), {"exchange": which.exchange}, as_json=as_json)
    if not found.good:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationReport:
    """What was declared, or would be. `where`: the broker, for people. `deleted`: an exchange; None: none."""

    plan: CreatePlan
    where: str
    missing: Sequence[Part]
    declared: int
    dry_run: bool
    version: str | None = None
    deleted: str | None = None
    unchecked: Sequence[str] = ()

    @classmethod
    def of(cls, plan: CreatePlan, creation: "Creation", replace: bool, dry_run: bool) -> "CreationReport":
        """Of a broker."""
        return cls(
            plan=plan,
            where=f"{creation.broker} (RabbitMQ {creation.version})",
            missing=creation.missing,
            declared=creation.declared,
            dry_run=dry_run,
            version=creation.version,
            deleted=_deleted(plan, replace),
            unchecked=creation.unchecked,
        )

    @classmethod
    def planned(cls, plan: CreatePlan, exported: "BrokerSnapshot", replace: bool) -> "CreationReport":
        """Of an export."""
        from delaystore.cascades import missing_parts

        topology = plan.topology
        layout = topology.behind + topology.ingress_exchange if plan.ingress_exchange or replace else topology.behind
        return cls(
            plan=plan,
            where="the broker of the export",
            missing=missing_parts(layout, exported),
            declared=0,
            dry_run=True,
            deleted=_deleted(plan, replace),
        )

    @property
    def steps(self) -> Sequence[str]:
        """What is left to do to leave the plugin."""
        switch = self.plan.switch
        return () if switch is None or self.deleted is not None else switch.steps(self.plan.ingress_exchange)

    def print(self, *, as_json: bool) -> None:
        """For people, or as a document."""
        if as_json:
            print_document(self._document())
        else:
            self._print_text()

    def _document(self) -> dict[str, Any]:
        names, switch = self.plan.topology.names, self.plan.switch
        return {
            "exchange": names.exchange,
            "queue": names.queue,
            "out": names.out,
            "out_type": self.plan.topology.out_type,
            "exchange_type": self.plan.topology.exchange_type,
            "broker": self.where,
            "version": self.version,
            "dry_run": self.dry_run,
            "deleted": self.deleted,
            "missing": [part_document(part) for part in self.missing],
            "declared": self.declared,
            "unchecked": list(self.unchecked),
            "waiting_in_plugin": None if switch is None else switch.plugin.waiting,
            "remarks": [] if switch is None else list(switch.plugin.remarks),
            "steps": list(self.steps),
        }

    def _print_text(self) -> None:
        names, would = self.plan.topology.names, "would be " if self.dry_run else ""
        if self.deleted is not None:
            tell(f"{'would delete' if self.dry_run else 'deleted'}: exchange {self.deleted!r}")
        for part in self.missing:
            tell(f"{'would declare' if self.dry_run else 'declared'}: {part}")
        state = "ready" if self.plan.ingress_exchange or self.deleted is not None else "prepared"
        new = counted(len(self.missing), "new part") if self.missing else "nothing is new"
        tell(f"{would}{state}: {names.exchange!r} on {self.where}; {new}")
        for number, step in enumerate(self.steps, 1):
            tell(f"{number}. {step}")
        if self.plan.switch is not None:
            for remark in self.plan.switch.plugin.remarks:
                say(f"caution: {remark}")
        say_unchecked(self.unchecked)


def _deleted(plan: CreatePlan, replace: bool) -> str | None:
    """The plugin's exchange, if it makes way."""
    return plan.switch.plugin.name if plan.switch is not None and replace and not plan.ingress_exchange else None


def create(
    context: typer.Context,
    *,
    wish: ToCreate,
    dry_run: DryRun = False,
    on: BrokerOptions,
    as_json: Json = False,
) -> None:
    """Declare an ingress: E, the ingress queue, and the output exchange. May be run again.

    Programs publish to E, with a delay in a header. The ingress queue gets all of them. Due messages are published to
    the output exchange, with the same routing key: bind your queues there. Checks everything first. Exit code 2:
    something differs, each difference is named, and nothing was changed.
    """
    report = _by_export(wish) if dry_run and not _broker_is_typed(context) else None
    if report is None:
        with on.open("delaystore ingest") as client:
            plan = plan_for(wish, client)
            try:
                report = CreationReport.of(plan, _created(client, plan, wish, dry_run), wish.replace, dry_run)
            except _refusals() as error:
                raise _told(error, dry_run, as_json) from None
            if not dry_run and _leads_nowhere(client, plan.topology.names.out):
                say(
                    f"caution: exchange {plan.topology.names.out!r} leads to no queue yet; bind your queues to it, or "
                    "due messages go to the error queue"
                )
    report.print(as_json=as_json)


def _broker_is_typed(context: typer.Context) -> bool:
    """Whether the broker is an option of this command line, and not only in the environment, where it often is."""
    source = context.get_parameter_source("broker")
    return source is not None and source.name == "COMMANDLINE"


def _leads_nowhere(client: "BrokerClient", out: str) -> bool:
    """Whether no queue is behind `out`, as far as the management API tells."""
    return client.management is not None and not client.management.snapshot().queues_behind(out)


def _by_export(wish: CreateOptions) -> CreationReport | None:
    """What would be done on the broker that an export was made of. None: there is no export."""
    exported = wish.exported(None)
    return None if exported is None else CreationReport.planned(plan_from(wish, exported), exported, wish.replace)


def _created(client: "BrokerClient", plan: CreatePlan, wish: CreateOptions, dry_run: bool) -> "Creation":
    from delaystore.ingress import topology as ingress
    from delaystore.transports.rabbitmq.declaring import declared_until_then

    declared: list[Part] = []
    try:
        if plan.switch is not None and wish.replace and not (plan.ingress_exchange or dry_run):
            return ingress.replace_exchange(client, plan.switch, declared.append)
        return ingress.create(
            client, plan.topology, ingress_exchange=plan.ingress_exchange, dry_run=dry_run, on_declared=declared.append
        )
    except KeyboardInterrupt:
        say(declared_until_then(declared))
        raise


def _refusals() -> "type[TopologyRefusedError]":
    from delaystore.cascades import TopologyRefusedError

    return TopologyRefusedError


def _told(error: "TopologyRefusedError", dry_run: bool, as_json: bool) -> TransportSetupError:
    """The error that ends the command, once each finding is printed."""
    if as_json:
        findings = [finding_document(finding) for finding in error.findings]
        print_document({"dry_run": dry_run, "declared": 0, "findings": findings})
    elif len(error.findings) > 1:
        for finding in error.findings:
            say(f"{finding.kind}: {finding}")
        return TransportSetupError(f"{len(error.findings)} blocking findings; nothing was declared")
    return error


ingest_app = command_group(run)
add_commands(
    ingest_app, {"create": create, "verify": verify, "status": status, "retry": retry, "delete": delete}, "ingest"
)


__all__: list[str] = []
