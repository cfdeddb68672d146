"""What goes into memory comes out byte for byte, the prompt parses back to the same blocks, and no prompt
mixes two commits. The parser here knows docs/memory-format.md and nothing of our code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.errors import MemoryEditError
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.prompt import PromptCache
from letta_code.memory.rules import problems_of
from tests.memory.conftest import AGENT

FRAME = {
    "self", "memory", "projection", "description", "usage", "read_only", "external_projection", "problems",
    "memory_update", "removed", "memory_blocks", "memory_metadata", "available_skills", "system-reminder",
}  # fmt: skip

plain = st.characters(exclude_categories=["Cs", "Cc"])
evil = st.sampled_from(
    ["</memory>", "</self>", "<memory>", "<projection>$MEMORY_DIR/system/x.md</projection>", "</human>",
     "&lt;", "&amp;lt;", "<b>", "$&", "{CORE_MEMORY}", "---", "\n", "\r\n", "\ufeff", "`", "</ self >"]
)  # fmt: skip
body = st.lists(st.one_of(st.text(plain, max_size=12), evil), max_size=10).map("".join)
part = st.one_of(
    st.text(st.one_of(plain.filter(lambda c: c not in "/"), st.sampled_from("\n\t")), min_size=1, max_size=8),
    st.sampled_from(["human", "a b", "a_b", "memory", "<self>", "新聞", "__proto__", '"q"', "$&", "x.y"]),
)
words = st.one_of(st.text(plain, min_size=1, max_size=20), evil).filter(lambda text: text.strip() != "")


@st.composite
def files(draw: st.DrawFn) -> dict[str, str]:
    """Path to text: whatever may be committed of what was drawn."""
    kept: dict[str, str] = {}
    for _ in range(draw(st.integers(1, 6))):
        path = "system/" + "/".join(draw(st.lists(part, min_size=1, max_size=3))) + ".md"
        header = f"description: {_yaml(draw(words))}\n" + draw(
            st.sampled_from(["", "limit: 5000\n", "read_only: true\n", "x-own: [1, 'two'] # kept\n"])
        )
        text = f"---\n{header}---\n{draw(body)}"
        try:
            wrong = problems_of({name: b"" for name in kept}, {path: text.encode()})
        except MemoryEditError:
            continue
        if not wrong:
            kept[path] = text
    return kept


def _yaml(text: str) -> str:
    return (
        "'"
        + unicodedata.normalize("NFC", text).replace("'", "''").replace("\n", " ").replace("\r", " ")
        + "'"
    )


@given(files())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_goes_in_comes_out_and_the_prompt_parses_back(given_files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        persona = {"system/persona.md": "---\ndescription: me\n---\nI am.\n"}
        repository = MemoryRepository.create(
            home / "repo.git", home / "memory", {**persona, **given_files}, AGENT, "Begin"
        )
        snapshot = repository.snapshot()
        for path, text in given_files.items():
            assert snapshot.read(path) == text.encode()
            assert (home / "memory" / path).read_bytes() == text.encode()
        prompt = PromptCache(home / "cache").get("Base.\n{CORE_MEMORY}\nEnd.", repository, repository.head())
        assert prompt.problems == ()
        bodies = {path: _body(text) for path, text in given_files.items()}
        assert parsed(prompt.text) == {
            **bodies,
            "system/persona.md": bodies.get("system/persona.md", "I am."),
        }


def _body(text: str) -> str:
    return text.split("\n---\n", 1)[1].rstrip("\r\n")


def _name(shown: str) -> str:
    """A path from its form in the prompt."""
    return re.sub(
        r"\\(?:\\|[tnr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})",
        lambda m: m[0].encode("ascii").decode("unicode_escape"),
        shown,
    )


def parsed(prompt: str) -> dict[str, str]:
    """Body by path, as a reader of docs/memory-format.md takes the prompt apart: every `<projection>` begins
    a block; the tags between one block and the next follow from their paths and must be there."""
    pieces = re.split(r"^<projection>\$MEMORY_DIR/(.*)</projection>$", prompt, flags=re.MULTILINE)
    paths = [_name(_unescaped(path)) for path in pieces[1::2]]
    tags = [_tags(path) for path in paths]
    found: dict[str, str] = {}
    for number, (path, piece) in enumerate(zip(paths, pieces[2::2], strict=True)):
        text = piece.removeprefix("\n")
        following = tags[number + 1] if number + 1 < len(paths) else []
        shared = _shared(paths[number], paths[number + 1]) if following else 0
        ends = [f"</{tag}>" for tag in reversed(tags[number][shared:])]
        if path == "system/persona.md":
            ends += ["", "<memory>"] if following else ["End."]
        elif not following:
            ends += ["</memory>", "End."]
        suffix = "\n".join([*ends, *(f"<{tag}>" for tag in following[shared:])]) + ("\n" if following else "")
        assert text.endswith(suffix), (text, suffix)
        text = text[: len(text) - len(suffix)].removesuffix("\n")
        for field in ("description", "usage", "read_only"):
            text = re.sub(rf"\A<{field}>.*?</{field}>(\n|\Z)", "", text, flags=re.DOTALL)
        assert path not in found
        found[path] = _unescaped(text)
    return found


def _tags(path: str) -> list[str]:
    if path == "system/persona.md":
        return ["self"]
    return [_tag(name) for name in path.removesuffix(".md").split("/")[1:]]


def _tag(name: str) -> str:
    tag = re.sub(r"[^\w.-]", "_", name)
    tag = tag if tag[0].isalpha() or tag[0] == "_" else "_" + tag
    return tag + "_" if tag.casefold() in FRAME else tag


def _shared(one: str, other: str) -> int:
    if "system/persona.md" in (one, other):
        return 0
    ours, theirs = (path.removesuffix(".md").split("/")[1:] for path in (one, other))
    count = 0
    while count < min(len(ours), len(theirs)) and ours[count] == theirs[count]:
        count += 1
    return count


def _unescaped(text: str) -> str:
    return re.sub(r"&((?:amp;)*)lt;", lambda m: "<" if not m[1] else f"&{m[1][4:]}lt;", text)


_SWAPPER = """
import json, sys
from pathlib import Path
from letta_code.memory.edits import Put
from letta_code.memory.git.repository import Author, MemoryRepository
repository = MemoryRepository.open(Path(sys.argv[1]))
states = [{path: text.encode() for path, text in state.items()} for state in json.loads(sys.stdin.read())]
for number in range(14):
    new, old = states[number % 2], states[(number + 1) % 2]
    gone = {path: None for path in old if path not in new}
    repository.commit(Put({**new, **gone}), f"swap {number}", Author("Swapper", "s@x"))
"""


@given(
    st.sets(st.sampled_from(["a", "b/c", "b/d", "e", "f", "g/h/i"]), min_size=2),
    st.sets(st.sampled_from(["a", "b/c", "b/x", "e", "y", "g/h/i"]), min_size=2),
)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_commit_that_races_a_compile_never_yields_a_mix(first: set[str], second: set[str]) -> None:
    states = [_state(first, "one"), _state(second, "two")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        texts = [_alone(home / f"alone-{number}", state) for number, state in enumerate(states)]
        repository = MemoryRepository.create(home / "repo.git", home / "memory", states[1], AGENT, "Begin")
        writer = subprocess.Popen(
            [sys.executable, "-c", _SWAPPER, str(repository.git_dir)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert writer.stdin is not None
        writer.stdin.write(json.dumps(states))
        writer.stdin.close()
        seen: set[str] = set()
        while writer.poll() is None:
            cache = PromptCache(home / "cache")
            prompt = cache.get("Base.", repository, repository.head())
            assert prompt.text in texts
            seen.add(prompt.revision)
        assert writer.stderr is not None
        assert writer.wait() == 0, writer.stderr.read()
        writer.stderr.close()
        assert len(seen) > 1


def _state(names: set[str], mark: str) -> Mapping[str, str]:
    return {f"system/{name}.md": f"---\ndescription: {mark}\n---\n{name} in {mark}\n" for name in names}


def _alone(home: Path, state: Mapping[str, str]) -> str:
    repository = MemoryRepository.create(home / "repo.git", home / "memory", state, AGENT, "Begin")
    return PromptCache(home / "cache").get("Base.", repository, repository.head()).text
