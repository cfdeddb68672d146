"""An estimate of how many tokens a text has, for budgets and shares. The provider's usage is the truth."""

from __future__ import annotations


def estimated_tokens(text: str) -> int:
    """About how many tokens a model counts for `text`."""
    return -(-len(text) // 4)
