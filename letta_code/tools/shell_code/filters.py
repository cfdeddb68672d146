"""Programs given to `sed`, `awk` and `jq` as arguments: which are known to only read what they are given.

Each language can write files, run commands or print the environment; a program passes when nothing in it
could be one of these, without understanding the rest.
"""

from __future__ import annotations

import re

OPERAND = "./\0"
"""Stands for a word that is no option, whatever else it is."""

_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\[\n]|\\.|\[\^?\]?[^\]/\n]*\])*/I?|\+\d+)"
_PART = {  # what may stand between delimiters; a bracket that holds one is read differently by some seds
    mark: rf"(?:[^{mark}\\\[\n]|\\[^\n]|\[\^?\]?[^\]{mark}\n]*\])*" for mark in "/|,#:@!%"
}
_REPLACES = "|".join(
    rf"s{re.escape(mark)}{part}{re.escape(mark)}(?:[^{mark}\\\n]|\\[\s\S])*{re.escape(mark)}[gpiI0-9]*"
    for mark, part in _PART.items()
)
_MAPS = r"y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/"
_SED_COMMAND = rf"(?:{_ADDRESS}(?:\s*,\s*{_ADDRESS})?)?\s*!?\s*(?:[pdDPnNhHgGxl=q]|{_REPLACES}|{_MAPS})"
_SED = re.compile(rf"[\s;]*(?:{_SED_COMMAND}\s*(?:[;\n][\s;]*|\Z))*")
_SED_GROUP = re.compile(rf"\s*{_ADDRESS}(?:\s*,\s*{_ADDRESS})?\s*!?\s*\{{([^{{}}]*)\}}\s*")
_AWK_ACTS = re.compile(
    r"system|getline|ENVIRON|PROCINFO|SYMTAB|FUNCTAB|ARGV|ARGC|close|fflush|[@|]|>(?!=)|\\$", re.MULTILINE
)
_JQ_FLAGS = re.compile(r"-[cCejnrRsSMa]+|--(?:raw-output|compact-output|null-input|slurp|sort-keys|tab)")
_JQ_ACTS = re.compile(r"\benv\b|\$ENV|\b(?:import|include)\b")


def sed_reads(arguments: list[str]) -> bool:
    """Whether `sed` with these arguments only prints."""
    options, operands = split(arguments, valued="e", plain="nErsuz", long=("--quiet", "--silent"))
    if options is None:
        return False
    scripts = [value for letter, value in options if letter == "e"] or operands[:1]
    return bool(scripts) and all(map(_sed_script_reads, scripts))


def _sed_script_reads(script: str) -> bool:
    if len(script) > 500:
        return False
    if group := _SED_GROUP.fullmatch(script):
        script = group[1]
    return bool(script.strip()) and _SED.fullmatch(script) is not None


def awk_reads(arguments: list[str]) -> bool:
    """Whether `awk` with these arguments only prints."""
    options, operands = split(arguments, valued="Fv")
    if options is None or not operands or operands[0] == OPERAND:
        return False
    program = operands[0].replace("||", "")
    if "{" not in program:
        program = program.replace(">", "")  # a comparison: without an action nothing is printed elsewhere
    return not _AWK_ACTS.search(program)


def jq_reads(arguments: list[str]) -> bool:
    """Whether `jq` with these arguments prints nothing of the environment (keys of models are there)."""
    if OPERAND in arguments:  # not known to be no program, unless a program stands before it
        first = next((index for index, part in enumerate(arguments) if not _JQ_FLAGS.fullmatch(part)), 0)
        if arguments[first] == OPERAND or arguments[first].startswith("-"):
            return False
    files = any(re.match(r"-[A-Za-z]*[fL]|--(?:from|lib)", part) for part in arguments)  # programs in files
    return not files and not any(map(_JQ_ACTS.search, arguments))


def split(
    arguments: list[str], valued: str = "", plain: str = "", long: tuple[str, ...] = ()
) -> tuple[list[tuple[str, str]] | None, list[str]]:
    """Options, as letters with their values, and operands. `valued` are letters that take a value, `plain`
    those that do not; None for options when there are others."""
    options: list[tuple[str, str]] = []
    operands: list[str] = []
    rest = list(arguments)
    while rest:
        part = rest.pop(0)
        if part == "--":
            return options, operands + rest
        if not part.startswith("-") or part == "-":
            operands.append(part)
        elif part in long:
            options.append((part, ""))
        else:
            bundle = re.fullmatch(rf"-([{plain or '-'}]*)(?:([{valued or '-'}])([\s\S]*))?", part)
            if bundle is None or part.startswith("--"):
                return None, operands
            options += [(letter, "") for letter in bundle[1]]
            if bundle[2]:
                if not bundle[3] and not rest:
                    return None, operands
                options.append((bundle[2], bundle[3] or rest.pop(0)))
    return options, operands
