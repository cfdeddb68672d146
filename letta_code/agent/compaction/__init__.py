"""Compaction: what requests carry of a conversation is made shorter, and nothing leaves the transcript."""
