"""Texts that a tokenizer cannot take whole."""

from __future__ import annotations

from base64 import b64encode

from letta_code.agent.vocabulary import loaded


def test_runs_of_a_million_spaces_and_what_looks_special_are_counted() -> None:
    """tiktoken panics over so many at once, which no `except Exception` sees."""
    lines = (b"%s %d\n" % (b64encode(bytes([byte])), byte) for byte in range(256))
    vocabulary = loaded("o200k_base", b"".join(lines))
    assert vocabulary.count(" " * 1_000_000) == 1_000_000
    assert vocabulary.count("<|endoftext|>") == 13
    assert vocabulary.count("\ud800") == 3
