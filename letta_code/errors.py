"""Every error this program raises on purpose.

::

    LettaError                    a person can fix it: one line, a hint, an exit code
    ├ UsageError                  the command line or a setting is wrong          (exit 2)
    ├ StorageError                a file or folder of ours cannot be read or written
    ├ MemoryStoreError            the memory repository cannot do what was asked
    │   ├ MemoryEditError         the edit is wrong and whoever asked can correct it
    │   ├ MemoryConflict          HEAD moved and the edit no longer applies
    │   └ MemoryRemoteError       the remote cannot be reached or refuses   (exit 75 where retryable)
    ├ SandboxError                the sandbox is asked for and cannot be had
    ├ ConversationError           a conversation is missing, locked or unreadable
    ├ AgentError                  an agent is missing, ambiguous or unreadable
    ├ SystemPromptOverflow        system prompt and tools alone fill the model's window
    └ ModelError                  a model request failed                    (exit 75 where retryable)

    ToolError                     a tool refuses; its text becomes the error result the model reads

Anything else that escapes is a bug: logged with its traceback and shown as one.
"""

from __future__ import annotations

from typing import Literal

ModelErrorKind = Literal[
    "auth",  # 401, 403: the key is missing, wrong or not allowed
    "not_found",  # 404: no such model or no such path at this base URL
    "invalid_request",  # 400, 413, 422: repeating it cannot help
    "context_overflow",  # the request is larger than the model's window
    "rate_limited",  # 429
    "overloaded",  # 500, 502, 503, 504, 529 and in-band overload events
    "network",  # refused, reset, DNS, TLS, timeout before an answer
    "broken_stream",  # the stream went silent, closed early or was unreadable
    "untrusted",  # TLS: the server's certificate is not trusted
    "no_model",  # nothing to talk to was configured or found
]

RETRYABLE_KINDS: frozenset[str] = frozenset({"rate_limited", "overloaded", "network", "broken_stream"})

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_RETRY_LATER = 75  # EX_TEMPFAIL of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_TERMINATED = 143  # 128 + SIGTERM


class LettaError(Exception):
    """Something a person can fix: `message` is one line, `hint` says what to do about it."""

    exit_code: int = EXIT_FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LettaError):
    """The command line or a setting is wrong."""

    exit_code = EXIT_USAGE


class StorageError(LettaError):
    """A file or folder of ours cannot be read or written."""


class MemoryStoreError(LettaError):
    """The memory repository cannot do what was asked; nothing was changed."""


class MemoryEditError(MemoryStoreError):
    """The edit itself is wrong (ambiguous, over a limit, read-only, bad path); HEAD did not move."""


class MemoryConflict(MemoryStoreError):
    """HEAD moved since the edit was made and the edit no longer applies; HEAD did not move further."""


class MemoryRemoteError(MemoryStoreError):
    """The remote of a memory cannot be reached, or refuses. `retryable`: it may work later by itself."""

    def __init__(self, message: str, hint: str = "", *, retryable: bool = False) -> None:
        super().__init__(message, hint)
        self.retryable = retryable
        self.exit_code = EXIT_RETRY_LATER if retryable else EXIT_FAILED


class SandboxError(LettaError):
    """The sandbox is asked for and cannot be had; nothing is run without it."""


class ConversationError(LettaError):
    """A conversation is missing, in use by another process, or unreadable."""


class AgentError(LettaError):
    """An agent is missing, ambiguous or unreadable."""


class SystemPromptOverflow(LettaError):
    """System prompt and tools alone fill the model's window: no conversation fits beside them."""

    kind = "context_window_overflow_in_system_prompt"


class ModelError(LettaError):
    """A model request failed.

    `kind` is one of `ModelErrorKind`; `retry_after` is the server's own wish in seconds, when it
    gave one; `status` is the HTTP status, when there was one; `silent` says that a whole idle timeout
    was spent on waiting; `again` is what the server itself said about sending the request again.
    """

    def __init__(
        self,
        message: str,
        kind: ModelErrorKind,
        *,
        hint: str = "",
        retry_after: float | None = None,
        status: int | None = None,
        silent: bool = False,
        again: bool | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.silent = silent
        self.again = again
        self.kind: ModelErrorKind = kind
        self.retry_after = retry_after
        self.status = status
        self.exit_code = EXIT_RETRY_LATER if self.retryable else EXIT_FAILED

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE_KINDS


class ToolError(Exception):
    """A tool refuses or fails; the text is written for the model, which can act on it."""
