"""Conversations on disk: append-only transcripts, what they fold to, and the store that finds them."""
