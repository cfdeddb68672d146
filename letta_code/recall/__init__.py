"""Finding stored messages again: an index derived from the transcripts, and searches in it."""
