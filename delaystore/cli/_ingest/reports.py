"""What `delaystore ingest create` says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delaystore.amounts import counted
from delaystore.cli._broker_reports import part_document, say_unchecked
from delaystore.cli._ingest.planning import Plan
from delaystore.cli._output import print_document, say, tell
from delaystore.transports.rabbitmq.topology.layout import Part

if TYPE_CHECKING:
    from delaystore.cascades import Creation, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationReport:
    """What was declared, or would be. `where`: the broker, for people. `deleted`: an exchange; None: none."""

    plan: Plan
    where: str
    missing: Sequence[Part]
    declared: int
    dry_run: bool
    version: str | None = None
    deleted: str | None = None
    unchecked: Sequence[str] = ()

    @classmethod
    def of(cls, plan: Plan, creation: "Creation", replace: bool, dry_run: bool) -> "CreationReport":
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
    def planned(cls, plan: Plan, exported: "Snapshot", replace: bool) -> "CreationReport":
        """Of an export."""
        from delaystore.cascades import missing_parts

        topology = plan.topology
        layout = topology.behind + topology.entrance if plan.entrance or replace else topology.behind
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
        return () if switch is None or self.deleted is not None else switch.steps(self.plan.entrance)

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
            "exchange_type": self.plan.topology.entrance_type,
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
        state = "ready" if self.plan.entrance or self.deleted is not None else "prepared"
        new = counted(len(self.missing), "new part") if self.missing else "nothing is new"
        tell(f"{would}{state}: {names.exchange!r} on {self.where}; {new}")
        for number, step in enumerate(self.steps, 1):
            tell(f"{number}. {step}")
        if self.plan.switch is not None:
            for remark in self.plan.switch.plugin.remarks:
                say(f"caution: {remark}")
        say_unchecked(self.unchecked)


def _deleted(plan: Plan, replace: bool) -> str | None:
    """The plugin's exchange, if it makes way."""
    return plan.switch.plugin.name if plan.switch is not None and replace and not plan.entrance else None
