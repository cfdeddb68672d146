"""What requests took and cost, as tables and as numbers. Prices are today's; what has none is said, and is in
no sum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from letta_code.cli.show import columns, label
from letta_code.core.messages import Usage

if TYPE_CHECKING:
    from letta_code.conversations.spending import Spending, Spent


@dataclass(slots=True)
class Sum:
    """What several requests took. `cost` is of those whose price is known (US dollars); `unpriced` are the
    models of the others."""

    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    unpriced: set[str] = field(default_factory=set)
    priced: int = 0

    def add(self, spent: Spent) -> None:
        """One more request."""
        from letta_code.models.catalog import model_info

        provider, _, name = spent.model.partition("/")
        cost = model_info(provider, name).cost(spent.usage)
        self.requests += 1
        self.usage += spent.usage
        if cost is None:
            self.unpriced.add(spent.model)
        else:
            self.priced += 1
            self.cost += cost

    @property
    def hit(self) -> float:
        """The share of the prompts' tokens that came from the provider's cache."""
        prompt = self.usage.context - self.usage.output
        return self.usage.cache_read / prompt if prompt else 0.0

    @property
    def dollars(self) -> str:
        """The cost in words; "?" stands for what is not known."""
        if not self.priced:
            return "?" if self.unpriced else "$0"
        known = f"${self.cost:.4f}" if self.cost < 1 else f"${self.cost:,.2f}"
        return f"{known} + ?" if self.unpriced else known


def sum_of(spent: Iterable[Spent]) -> Sum:
    """All of them together."""
    total = Sum()
    for item in spent:
        total.add(item)
    return total


def by_model(spent: Sequence[Spent]) -> dict[str, Sum]:
    """The sum of each model, the one that took most first."""
    sums: dict[str, Sum] = {}
    for item in spent:
        sums.setdefault(item.model, Sum()).add(item)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].usage.context, item[0])))


def by_turn(spending: Spending) -> dict[int, Sum]:
    """The sum of each turn, also of those in which nothing was answered."""
    sums = {turn: Sum() for turn in sorted({*spending.ends, *spending.broken})}
    for item in spending.spent:
        sums.setdefault(item.turn, Sum()).add(item)
    return dict(sorted(sums.items()))


HEAD = ("requests", "in", "cached", "out", "cost")


def row(total: Sum) -> tuple[str, ...]:
    """The cells below `HEAD`."""
    prompt = total.usage.context - total.usage.output
    return (
        f"{total.requests:,}",
        f"{prompt:,}",
        f"{total.hit:.0%}" if prompt else "-",
        f"{total.usage.output:,}",
        total.dollars,
    )


def model_rows(spent: Sequence[Spent]) -> list[tuple[str, ...]]:
    """A table of models with their sum."""
    sums = by_model(spent)
    rows = [("model", *HEAD), *((label(model), *row(total)) for model, total in sums.items())]
    return rows if len(sums) == 1 else [*rows, ("all", *row(sum_of(spent)))]


def turn_rows(spending: Spending) -> list[tuple[str, ...]]:
    """A table of turns."""
    return [
        ("turn", *HEAD, "ended"),
        *((str(turn), *row(total), _ended(spending, turn)) for turn, total in by_turn(spending).items()),
    ]


def conversation_lines(spending: Spending) -> list[str]:
    """One conversation in a few lines: its last turn, and all of it by model."""
    if not spending.spent:
        return ["no request was answered yet", *doubts([spending])]
    last = spending.spent[-1].turn
    rows = model_rows(spending.spent)
    rows.insert(1, ("last turn", *row(sum_of(item for item in spending.spent if item.turn == last))))
    return [*columns(rows), *doubts([spending])]


def doubts(spendings: Sequence[Spending]) -> list[str]:
    """What the sums do not contain, a line each."""
    unpriced = sum_of(item for spending in spendings for item in spending.spent).unpriced
    broken = sum(sum(spending.broken.values()) for spending in spendings)
    lines = []
    if unpriced:
        lines.append(f"? no price is known for {', '.join(map(label, sorted(unpriced)))}")
    if broken:
        answers = "1 answer that broke off took" if broken == 1 else f"{broken:,} answers that broke off took"
        lines.append(f"what {answers} is not known, and not counted")
    return lines


def sum_data(total: Sum) -> dict[str, Any]:
    """A sum for JSON. `cost_usd` is null when no part of it is known, and a part where `unpriced` names
    models."""
    usage = total.usage
    return {
        "requests": total.requests,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
        },
        "cache_hit": round(total.hit, 4),
        "cost_usd": round(total.cost, 6) if total.priced or not total.unpriced else None,
        "unpriced": sorted(total.unpriced),
    }


def _ended(spending: Spending, turn: int) -> str:
    broken = spending.broken.get(turn, 0)
    ended = spending.ends.get(turn, "not on record")
    return f"{ended}, {broken} broke off" if broken else ended
