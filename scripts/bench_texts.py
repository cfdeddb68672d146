"""Texts for the benchmarks: what is generated here is the same in every run."""

from __future__ import annotations

import random

_WORDS = """
the a of to in and for with that this is was it on as by from or be are file test server request answer
memory window token count message person project branch commit change error fix build deploy function class
value list returned because however although everything nothing sometimes together quickly careful
implementation winter configuration responsibility documentation unfortunately asynchronous parse write read
cache latency release review morning evening garden river mountain letter number question light
"""
_NAMES = "total path user config item result index buffer handler session cursor offset limit parser"


def prose(seed: int, characters: int) -> str:
    """English sentences without sense."""
    chance = random.Random(f"prose {seed}")
    known = _WORDS.split()
    text = ""
    while len(text) < characters:
        words = [chance.choice(known) for _ in range(chance.randrange(6, 18))]
        text += " ".join(words).capitalize() + chance.choice((". ", ". ", "? ", "; ", ".\n"))
    return text.rstrip() + "\n"


def python_code(seed: int, characters: int) -> str:
    """Functions without sense."""
    chance = random.Random(f"python {seed}")
    names, words = _NAMES.split(), _WORDS.split()
    text = '"""A module."""\n\nfrom __future__ import annotations\n'
    while len(text) < characters:
        name, other = chance.choice(names), chance.choice(names)
        number = chance.randrange(1_000)
        text += (
            f"\n\ndef {name}_{other}_{number}({name}: int, {other}: str = {chance.choice(words)!r}) -> int:\n"
            f'    """Whether {name} is {chance.choice(words)}."""\n'
            f"    for {other[0]} in range({number}):\n"
            f"        if {name} > {number} and len({other}) != {number % 7}:\n"
            f"            return _{other}[{name}] == {chance.random():.3f}\n"
            f"    return False\n"
        )
    return text
