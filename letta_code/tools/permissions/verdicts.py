"""What a judgement is: the modes, a verdict, and the rules that stand while a session lives.

Shared by the judges of paths (`paths`), of commands (`commands`) and of whole calls
(`permissions`). Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from letta_code.tools.permissions.rules import Rule

Mode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
Kind = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision, why, and the rule that "always" would grant (empty: not offered).

    `remedy` is the option of the command line that would allow what asks, "" when none does; None: it
    follows from `rule`. `paths` are the files that were judged, resolved: what runs touches these and no
    others.
    """

    decision: Literal["allow", "ask", "deny"]
    reason: str = ""
    rule: str = ""
    remedy: str | None = None
    paths: tuple[Path, ...] = ()


ALLOW = Verdict("allow")


@dataclass(slots=True)
class Standing:
    """Mode and rules as they are now; both may change while the session lives."""

    mode: Mode
    allow: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    deny: tuple[Rule, ...]


def planning() -> Verdict:
    """The verdict on whatever changes something in plan mode."""
    return Verdict(
        "deny", "plan mode only reads; propose the change and let the person leave plan mode first"
    )


def by_rule(decision: Literal["ask", "deny"], rule: Rule) -> Verdict:
    """The verdict of an ask or deny rule: no option of the command line is above it."""
    verb = "denies it" if decision == "deny" else "asks for it"
    return Verdict(decision, f"the rule {rule.text} {verb}", remedy="")


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """Deny before ask before allow; among equals, one that offers no rule first."""
    found = list(verdicts)
    for decision in ("deny", "ask"):
        of_kind = [verdict for verdict in found if verdict.decision == decision]
        if of_kind:
            return min(of_kind, key=lambda verdict: bool(verdict.rule))
    return ALLOW
