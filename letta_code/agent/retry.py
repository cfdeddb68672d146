"""When a failed request is sent again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from letta_code.errors import ModelError, UsageError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Jittered exponential back-off: `base`·2ⁿ seconds, at most `cap`, for at most `attempts` retries, or
    `after_silence` where each costs an idle timeout. A server's own wish is obeyed up to `longest`
    seconds. So a step waits for five minutes at most, besides what its requests take."""

    base: float = 0.5
    cap: float = 30.0
    attempts: int = 5
    after_silence: int = 2
    longest: float = 60.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RetryPolicy:
        """The policy, with `base` from `LETTA_RETRY_BASE_SECONDS` where that is set.

        Raises:
            UsageError: it is not a number of seconds.
        """
        given = environment.get("LETTA_RETRY_BASE_SECONDS")
        if not given:
            return cls()
        try:
            seconds = float(given)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= cls().cap:
            raise UsageError(f"LETTA_RETRY_BASE_SECONDS is {given!r}", "a number of seconds, such as 0.5")
        return cls(base=seconds)

    def wait(self, error: ModelError, attempt: int) -> float:
        """Seconds to wait before retry number `attempt` (from 1).

        Raises:
            ModelError: it is not to be sent again: `error` itself, or one that says why not.
        """
        may = error.retryable if error.again is None else error.again
        if not may or attempt > (self.after_silence if error.silent else self.attempts):
            raise error
        if error.retry_after is not None and error.retry_after > self.longest:
            raise ModelError(
                f"{error.message} (the server asks to wait {_span(error.retry_after)})",
                error.kind,
                hint="try again after that time, or choose another model",
                retry_after=error.retry_after,
                status=error.status,
            ) from error
        backoff = min(self.cap, self.base * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        # Those who were told the same time must not all come back at once.
        return backoff if error.retry_after is None else error.retry_after + backoff * random.uniform(0, 0.5)


def _span(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 3600:.0f} hours" if seconds < 720 * 3600 else "more than a month"
