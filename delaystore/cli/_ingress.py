"""`delaystore ingress`: create, verify and delete the exchanges and queues of an ingress on the broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delaystore.cli._broker import (
    BrokerOptions,
    Deleting,
    Passive,
    creation_document,
    finding_document,
    print_verification,
    say_unchecked,
    saying_what_is_declared,
)
from delaystore.cli._commands import add_commands, plain_group
from delaystore.cli._ingress_options import (
    CreateOptions,
    CreatePlan,
    NameOptions,
    ToCreate,
    TypedNames,
    plan_for,
    plan_from,
)
from delaystore.cli._ingress_run import replay, run, status
from delaystore.cli._options import DryRunOption, JsonOption, environment_option
from delaystore.cli._output import print_document, print_line, print_note
from delaystore.errors import TransportSetupError
from delaystore.text import counted

if TYPE_CHECKING:
    from delaystore.cascades import BrokerClient, BrokerSnapshot, Creation, TopologyRefusedError


def delete(
    *,
    which: NameOptions,
    delete_output_exchange: Annotated[
        bool,
        environment_option(
            "--delete-output-exchange",
            "Also delete the output exchange, even if queues are bound to it.",
            group="ingress_delete",
        ),
    ] = False,
    options: Deleting,
    on: BrokerOptions,
    as_json: JsonOption = False,
) -> None:
    """Delete an ingress.

    The command deletes EXCHANGE, the queues of the ingress, and the output exchange if no queue is bound to it.
    EXCHANGE stays if other queues are bound to it. The command needs the management API, which counts all messages, and
    refuses while one of the queues has messages or consumers. It checks twice, six seconds apart, because the broker's
    counts can be that old.
    """
    from delaystore.ingress import topology as ingress

    names = which.names()
    with on.open("delaystore ingress") as client:
        options.delete(
            client,
            {"exchange": which.exchange},
            ingress.words_of(names),
            lambda: ingress.check_deletion(client, names, with_output=delete_output_exchange),
            lambda on_deleted: ingress.delete(
                client, names, with_output=delete_output_exchange, force=options.force, on_deleted=on_deleted
            ),
            as_json=as_json,
        )


def verify(
    *,
    which: TypedNames,
    passive: Passive = False,
    on: BrokerOptions,
    as_json: JsonOption = False,
) -> None:
    """Check the parts of an ingress on a broker.

    The report names defects of the broker, the user's permissions, and each exchange, queue and binding. It names
    bindings that bypass the delay, and harmful policies. It also names parts that could not be checked; without the
    management API there are more. Without a type, the exchanges may have any suitable type. Verify changes nothing.
    """
    from delaystore.ingress import topology as ingress

    names = which.names()
    with on.open("delaystore ingress") as client:
        found = ingress.verify(
            client,
            names,
            out_type=None if which.out_type is None else which.out_type.value,
            exchange_type=which.exchange_type_name,
            passive=passive,
        )
    print_verification(found, repr(which.exchange), {"exchange": which.exchange}, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationReport:
    """The parts that were declared, or would be. `deleted`: an exchange of the plugin; None: none."""

    plan: CreatePlan
    creation: "Creation"
    dry_run: bool
    deleted: str | None

    @property
    def steps(self) -> Sequence[str]:
        """The remaining steps to leave the plugin."""
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
            **creation_document(self.creation, dry_run=self.dry_run),
            "deleted": self.deleted,
            "waiting_in_plugin": None if switch is None else switch.plugin.waiting,
            "remarks": [] if switch is None else list(switch.plugin.remarks),
            "steps": list(self.steps),
        }

    def _print_text(self) -> None:
        names, would = self.plan.topology.names, "would be " if self.dry_run else ""
        missing, version = self.creation.missing, self.creation.version
        where = f"{self.creation.broker} (RabbitMQ {version})" if version else self.creation.broker
        if self.deleted is not None:
            print_line(f"{'would delete' if self.dry_run else 'deleted'}: exchange {self.deleted!r}")
        for part in missing:
            print_line(f"{'would declare' if self.dry_run else 'declared'}: {part}")
        state = "ready" if self.plan.ingress_exchange or self.deleted is not None else "prepared"
        new = counted(len(missing), "new part") if missing else "nothing is new"
        print_line(f"{would}{state}: {names.exchange!r} on {where}; {new}")
        for number, step in enumerate(self.steps, 1):
            print_line(f"{number}. {step}")
        if self.plan.switch is not None:
            for remark in self.plan.switch.plugin.remarks:
                print_note(f"caution: {remark}")
        say_unchecked(self.creation.unchecked)


def create(
    context: typer.Context,
    *,
    wish: ToCreate,
    dry_run: DryRunOption = False,
    on: BrokerOptions,
    as_json: JsonOption = False,
) -> None:
    """Create an ingress: exchanges and a queue.

    Programs publish to EXCHANGE, with the delay in a header. The ingress queue gets all these messages. When a message
    is due, delaystore publishes it to the output exchange with the same routing key. Bind your queues to the output
    exchange. The command checks everything first. If a part on the broker differs, it names each difference and changes
    nothing. You can run it again.
    """
    from delaystore.cascades import TopologyRefusedError

    exported = wish.exported(None) if dry_run and not _broker_is_typed(context) else None
    if exported is not None:
        plan = plan_from(wish, exported)
        creation = _planned(plan, wish, exported)
    else:
        with on.open("delaystore ingress") as client:
            plan = plan_for(wish, client)
            try:
                creation = _created(client, plan, wish, dry_run)
            except TopologyRefusedError as error:
                raise _refusal(error, dry_run, as_json) from None
            if not dry_run and _leads_nowhere(client, plan.topology.names.out):
                print_note(
                    f"caution: exchange {plan.topology.names.out!r} leads to no queue yet; bind your queues to it, or "
                    "due messages go to the error queue"
                )
    replaced = plan.switch is not None and wish.replace and not plan.ingress_exchange
    deleted = plan.switch.plugin.name if plan.switch is not None and replaced else None
    CreationReport(plan=plan, creation=creation, dry_run=dry_run, deleted=deleted).print(as_json=as_json)


def _broker_is_typed(context: typer.Context) -> bool:
    """Whether the broker is an option of this command line, and not only in the environment, where it often is."""
    sources = map(context.get_parameter_source, ("broker", "transport"))
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _leads_nowhere(client: "BrokerClient", out: str) -> bool:
    """Whether no queue is behind `out`, as far as the management API knows."""
    return client.management is not None and not client.management.snapshot().queues_behind(out)


def _planned(plan: CreatePlan, wish: CreateOptions, exported: "BrokerSnapshot") -> "Creation":
    """The parts that would be declared on the broker of an export."""
    from delaystore.cascades import Creation, missing_parts

    topology = plan.topology
    layout = topology.behind + topology.ingress_exchange if plan.ingress_exchange or wish.replace else topology.behind
    return Creation(broker="the broker of the export", version="", missing=missing_parts(layout, exported), declared=0)


def _created(client: "BrokerClient", plan: CreatePlan, wish: CreateOptions, dry_run: bool) -> "Creation":
    from delaystore.ingress import topology as ingress

    with saying_what_is_declared() as on_declared:
        if plan.switch is not None and wish.replace and not (plan.ingress_exchange or dry_run):
            return ingress.replace_exchange(client, plan.switch, on_declared)
        return ingress.create(
            client, plan.topology, ingress_exchange=plan.ingress_exchange, dry_run=dry_run, on_declared=on_declared
        )


def _refusal(error: "TopologyRefusedError", dry_run: bool, as_json: bool) -> TransportSetupError:
    """The error that ends the command, once each finding is printed."""
    if as_json:
        findings = [finding_document(finding) for finding in error.findings]
        print_document({"dry_run": dry_run, "declared": 0, "findings": findings})
    elif len(error.findings) > 1:
        for finding in error.findings:
            print_note(f"{finding.kind}: {finding}")
        return TransportSetupError(
            f"{len(error.findings)} blocking findings, and nothing was declared; correct them, and run the command "
            "again"
        )
    return error


ingress_app = plain_group(
    """Accept delayed messages from RabbitMQ.

    `run` stores messages that programs publish with a delay. `delaystore dispatch` or `delaystore serve` forwards them
    when they are due. The other commands manage the exchanges and queues of an ingress.
    """
)
add_commands(
    ingress_app,
    {"run": run, "create": create, "verify": verify, "status": status, "replay": replay, "delete": delete},
)


__all__: list[str] = []
