"""letta-code: a local-first coding agent for the terminal whose memory is a Git repository."""

__version__ = "0.1.0"
