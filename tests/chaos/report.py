"""Findings as text."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.findings import SETS, VIOLATIONS, Findings, Violation

NAMED = 10
"""Messages named of each kind of violation."""
TOLD = 3
"""Messages whose events are told."""
EVENTS = 30
"""Events told of one message."""


def table(title: str, findings: Findings) -> str:
    """The sets, the violations and the stalls, as a table."""
    counts = Counter(violation.kind for violation in findings.violations)
    lines = [title, ""]
    lines += [f"  {findings.counts[name]:>9,}  {name:26} {what}" for name, what in SETS.items()]
    lines.append("")
    lines += [f"  {counts[name]:>9,}  {name:26} {what}" for name, what in VIOLATIONS.items()]
    if findings.stalls:
        lines += ["", "  longest stall, and what was left of it when all faults had ended:"]
    for name, stall in sorted(findings.stalls.items()):
        times = f"{stall.faults} times" if stall.faults else ""
        lines.append(f"  {stall.longest:>7.1f} s {stall.after_end:>7.1f} s  {name:26} {times}".rstrip())
    return "\n".join(lines)


def violations(findings: Findings) -> str:
    """The violations: all kinds, the first messages of each, the events of the very first."""
    return "\n".join(_violations(findings))


def _violations(findings: Findings) -> Iterator[str]:
    by_kind: dict[str, list[Violation]] = {}
    for violation in findings.violations:
        by_kind.setdefault(violation.kind, []).append(violation)
    for kind, found in by_kind.items():
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        yield f"{kind.upper()} ({len(found)}): {', '.join(one.key for one in found[:NAMED])}{more}"
        for violation in found[:TOLD]:
            yield f"  {violation.key}: {violation.what}"
            yield from (f"    {event}" for event in violation.events[:EVENTS])
