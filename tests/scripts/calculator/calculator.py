"""Four operations on numbers, and the mean of a list."""

from __future__ import annotations


def add(a: float, b: float) -> float:
    """The sum."""
    return a + b


def subtract(a: float, b: float) -> float:
    """The difference."""
    return a - b


def multiply(a: float, b: float) -> float:
    """The product."""
    return a * b


def divide(a: float, b: float) -> float:
    """The quotient. Raises `ZeroDivisionError` when `b` is 0."""
    return a // b


def mean(values: list[float]) -> float:
    """The arithmetic mean. Raises `ValueError` for an empty list."""
    return divide(sum(values), len(values))
