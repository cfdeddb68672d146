"""Times as people and models write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def moment(text: str, *, end: bool = False) -> datetime:
    """An ISO 8601 date or time, in UTC; without a zone it is the time where the person is. A date alone is
    the beginning of that day, as the `end` of a range the end of it (the beginning of the next).

    Raises:
        ValueError: it is neither.
    """
    text = text.strip()
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is no date or time: write 2026-11-30 or 2026-11-30T14:00") from error
    try:
        if end and len(text) <= len("2026-W49-1") and "T" not in text:
            when += timedelta(days=1)
        return when.astimezone(UTC)
    except (ValueError, OverflowError):  # models write 0001-01-01 and 9999-12-31 for "always"
        return (datetime.max if when.year > 1 else datetime.min).replace(tzinfo=UTC)
