"""Memory in Git: the only package that knows pygit2. `repository` is the door; each other module is one thing
that is done with a repository."""

from __future__ import annotations

from letta_code.errors import MemoryStoreError

try:
    import pygit2  # noqa: F401
except Exception as error:
    if type(error).__name__ != "GitError":  # a class that is not there yet
        raise
    raise MemoryStoreError(
        "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read",
        "it must name certificates in PEM form; without it those of the system count",
    ) from error
