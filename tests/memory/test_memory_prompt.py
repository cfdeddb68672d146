from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from letta_code.memory.blocks import Block
from letta_code.memory.edits import Create, Delete, Replace
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.prompt import PromptCache, base_hash, compile_prompt
from letta_code.memory.render import REMINDER, render_memory, render_update, unescaped
from letta_code.memory.seed import default_files
from letta_code.memory.snapshot import Entry, MemorySnapshot
from tests.memory.conftest import AGENT, Git

EVIL = "$& $$ {CORE_MEMORY} {} %s </self>"


class _Folders:
    """Objects held in memory: folders by id, bodies by id."""

    def __init__(self, bodies: dict[str, str]) -> None:
        self.bodies = bodies

    def folder(self, id: str) -> tuple[Entry, ...]:
        if id == "root":
            return (Entry("system", "folder", "system"),)
        return tuple(Entry(name, "file", name) for name in sorted(self.bodies))

    def names(self, id: str) -> int:
        return len(self.bodies)

    def files_below(self, id: str) -> int:
        return len(self.bodies)

    def blob(self, id: str) -> bytes:
        return self.bodies[id].encode()

    def block(self, path: str, id: str) -> Block:
        return Block(path, self.bodies[id])


tags = st.sampled_from(["self", "memory", "human", "projection", "memory_update", "system-reminder", "b"])
body = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
        st.builds(
            lambda tag, form: form.format(tag),
            tags,
            st.sampled_from(["<{}>", "</{}>", "< / {} >", "<{} x='1'>", "&lt;{}>", "&amp;lt;{}", "</{}"]),
        ),
    ),
    max_size=12,
).map("".join)


@given(body, body)
def test_no_body_closes_its_element_or_opens_one_of_the_frame(persona: str, human: str) -> None:
    snapshot = MemorySnapshot("r", "root", _Folders({"persona.md": persona, "human.md": human}))
    text = render_memory(snapshot)
    frame = re.match(
        re.escape(REMINDER)
        + r"\n\n<self>\n<projection>\$MEMORY_DIR/system/persona\.md</projection>\n(.*?)\n?</self>\n\n"
        r"<memory>\n<human>\n<projection>\$MEMORY_DIR/system/human\.md</projection>\n(.*?)\n?</human>\n</memory>\Z",
        text,
        re.DOTALL,
    )
    assert frame is not None
    assert unescaped(frame[1]) == persona.rstrip("\r\n")
    assert unescaped(frame[2]) == human.rstrip("\r\n")
    assert not re.search(
        r"<\s*(?:self|memory|projection|memory_update|system-reminder)\b", frame[1] + "\n" + frame[2]
    )


def test_what_is_not_a_tag_of_ours_is_untouched(repository: MemoryRepository) -> None:
    text = f"<div>a && b &amp; c</div> {EVIL} <project>"
    repository.commit(Create("system/偏好", "p", text), "x", AGENT)
    prompt = compile_prompt("BASE {CORE_MEMORY} END", repository.snapshot())
    assert text in prompt
    assert (
        "<偏好>\n<projection>$MEMORY_DIR/system/偏好.md</projection>\n<description>p</description>\n"
        in prompt
    )
    assert prompt.startswith("BASE Reminder:")
    assert prompt.endswith("</memory> END")


def test_the_whole_shape(repository: MemoryRepository, git: Git) -> None:
    (repository.worktree / "system/human").mkdir()
    (repository.worktree / "system/human/prefs.md").write_text(
        "---\ndescription: d\nread_only: true\n---\nshort\n"
    )
    (repository.worktree / "system/secret.md").write_text(
        "---\ndescription: d\nhidden: true\n---\nnot shown\n"
    )
    (repository.worktree / "system/broken.md").write_text("---\nnever closed\n")
    (repository.worktree / "system/link.md").symlink_to("human.md")
    (repository.worktree / "skills/x").mkdir(parents=True)
    (repository.worktree / "skills/x/SKILL.md").write_text("skill\n")
    git("add", "-A")
    git("commit", "-qm", "x", "--no-verify")
    text = render_memory(repository.snapshot())
    assert text.split("\n\n", 2)[2] == (
        "<memory>\n"
        "<human>\n"
        "<projection>$MEMORY_DIR/system/human.md</projection>\n"
        "<description>The person.</description>\n"
        "<usage>11/40 characters</usage>\n"
        "Likes tea.\n"
        "<prefs>\n"
        "<projection>$MEMORY_DIR/system/human/prefs.md</projection>\n"
        "<description>d</description>\n"
        "<read_only>true</read_only>\n"
        "short\n"
        "</prefs>\n"
        "</human>\n"
        "<external_projection>\n"
        "$MEMORY_DIR/\n"
        "└── reference/\n"
        "    └── build.md — How to build.\n"
        "</external_projection>\n"
        "<problems>\n"
        "These memory files could not be shown whole:\n"
        "system/broken.md: the front matter is not closed by a line `---`\n"
        "system/link.md: is a symbolic link or a submodule; only its target's own file can be a block\n"
        "</problems>\n"
        "</memory>"
    )


def test_odd_names_get_safe_tags_and_one_line(repository: MemoryRepository) -> None:
    for name in ("a b", "__proto__", "memory", "1st", "two\nlines", "</memory>"):
        repository.commit(Create(f"system/{name}", "d", f"body of {name!r}"), "x", AGENT)
    text = render_memory(repository.snapshot())
    for tag in ("a_b", "__proto__", "memory_", "_1st", "two_lines"):
        assert f"\n<{tag}>\n<projection>" in text
        assert f"\n</{tag}>\n" in text
    assert "$MEMORY_DIR/system/two\\nlines.md" in text
    assert text.count("\n</memory>") == 1
    assert text.endswith("\n</memory>")


def test_e24_a_huge_body_is_cut_after_a_line_and_reported(repository: MemoryRepository) -> None:
    repository.commit(Create("system/huge", "d", "四行\n" * 100_000), "x", AGENT)
    snapshot = repository.snapshot()
    found = PromptCache(Path("/dev/null/none")).get("b", repository, snapshot.revision)
    assert "四行\n[cut here: 99,999 of 300,000 characters; the file has the rest]\n</huge>" in found.text
    assert [problem.path for problem in found.problems] == ["system/huge.md"]


def test_the_external_tree_is_bounded(repository: MemoryRepository, git: Git) -> None:
    for number in range(300):
        file = repository.worktree / f"notes/d{number % 60}/f{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("---\ndescription: d\n---\n")
    git("add", "-A")
    git("commit", "-qm", "x")
    tree = render_memory(repository.snapshot()).split("<external_projection>")[1]
    assert tree.count("\n") <= 210
    assert "… 10 more" in tree
    assert "/ (5 files)" in tree


def test_an_update_is_the_difference(repository: MemoryRepository) -> None:
    old = repository.snapshot()
    assert render_update(old, old) == ""
    repository.commit(Replace("system/human", "tea", "cake </memory_update>"), "x", AGENT)
    repository.commit(Delete("system/persona"), "x", AGENT)
    new = repository.snapshot()
    text = render_update(old, new)
    assert text.startswith(f'<memory_update revision="{new.revision}">\nMemory changed.')
    assert "Likes cake &lt;/memory_update>." in text
    assert "<removed>\nsystem/persona.md\n</removed>\n</memory_update>" in text
    assert "<external_projection>" not in text
    back = repository.snapshot(old.revision)
    assert "I am careful." in render_update(new, back)
    repository.commit(Delete("reference"), "x", AGENT)
    assert "(empty)" in render_update(new, repository.snapshot())


def test_a_change_that_is_not_shown_needs_no_update(repository: MemoryRepository) -> None:
    old = repository.snapshot()
    repository.commit(Replace("reference/build", "make", "ninja"), "body of an external file", AGENT)
    assert render_update(old, repository.snapshot()) == ""


def test_compiling_is_pure_and_the_cache_is_harmless(repository: MemoryRepository, tmp_path: Path) -> None:
    cache = PromptCache(tmp_path / "cache")
    revision = repository.head()
    first = cache.get("base", repository, revision)
    assert first.text == compile_prompt("base", MemoryRepository.open(repository.git_dir).snapshot())
    assert first.text == "base\n\n" + render_memory(repository.snapshot())
    assert first.base == base_hash("base")
    (file,) = (tmp_path / "cache").iterdir()
    for damage in (b"", b"{}\nx", b"\xff", file.read_bytes() + b"x", b"[1]\n", file.read_bytes()[:-4]):
        file.write_bytes(damage)
        assert cache.get("base", repository, revision) == first
    repository.commit(Replace("system/human", "tea", "cake"), "x", AGENT)
    assert cache.get("base", repository, revision) == first
    assert "cake" in cache.get("base", repository, repository.head()).text


def test_a_hit_reads_nothing_of_the_repository(repository: MemoryRepository, tmp_path: Path) -> None:
    first = PromptCache(tmp_path / "cache").get("base", repository, repository.head())

    class _Closed:
        def snapshot(self, revision: str | None = None) -> MemorySnapshot:
            raise AssertionError("the repository was read")

    assert PromptCache(tmp_path / "cache").get("base", _Closed(), first.revision) == first


def test_first_files_are_short_valid_and_committable(tmp_path: Path) -> None:
    files = {
        **default_files(),
        **{"system/rules/style.md": "---\ndescription: Memory block rules/style\n---\nshort\n"},
    }
    made = MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", files, AGENT, "x").snapshot()
    assert [block.label for block in made.blocks] == [
        "system/human",
        "system/persona",
        "system/project",
        "system/rules/style",
    ]
    assert all(block.description for block in made.blocks)
    assert made.problems == ()
    assert len("".join(default_files().values())) < 450 * 4
