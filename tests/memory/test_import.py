from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from letta_code.errors import UsageError
from letta_code.memory.blocks import parse_block
from letta_code.memory.importing.kinds import Kind, items_of, recognise
from letta_code.memory.importing.plan import Memory, Plan, make_plan, message_of
from letta_code.memory.rules import PERSON, Overrides, problems_of
from letta_code.memory.seed import default_files

SEED = {path: text.encode() for path, text in default_files().items()}
FAKE_KEY = "AKIAQ3EGXZ7PLMN2WKTD"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def planned(
    path: Path,
    memory: dict[str, bytes] | None = None,
    kind: Kind | None = None,
    project: str = "projects/p/",
    into: str = "",
    replace: bool = False,
    secret: bool = False,
    home: Path = Path("/nowhere"),
) -> Plan:
    source = recognise(path, home, kind)
    items, skipped = items_of(source, project, into, path.name)
    rules: Overrides = PERSON | {"limit", "secret"} if secret else PERSON | {"limit"}
    return make_plan(
        Memory(SEED if memory is None else memory, SEED), items, skipped, "~/src", rules, replace
    )


def targets(plan: Plan) -> dict[str, str]:
    return {one.source: one.target for one in plan.files}


def why(plan: Plan, path: str) -> str:
    return next(one.why for one in plan.skipped if one.path == path)


def after(plan: Plan, memory: dict[str, bytes] | None = None) -> dict[str, bytes]:
    merged = {**(SEED if memory is None else memory), **plan.changes}
    return {path: data for path, data in merged.items() if data is not None}


def body(plan: Plan, target: str) -> str:
    data = plan.changes[target]
    assert data is not None
    return parse_block(target, data).body


def test_rules_of_a_project_go_to_its_folder_with_what_they_include(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "CLAUDE.md": "# Rules\nSee @docs/a.md and @~/mine.md, not `@docs/code.md` nor me@example.org.\n",
            "docs/a.md": "More: @b.md, @missing.md",
            "docs/b.md": "b",
            "docs/code.md": "not included",
            "AGENTS.md": "# Agents\n",
            ".cursorrules": "Use tabs",
            ".cursor/rules/py.mdc": "---\ndescription: Py\nglobs: *.py\n---\nTyped\n",
            ".github/copilot-instructions.md": "Be terse",
            "GEMINI.md": "# Gemini\n",
            "README.md": "# No rule\n",
        },
    )
    plan = planned(tmp_path)
    assert targets(plan) == {
        "CLAUDE.md": "projects/p/CLAUDE.md",
        "docs/a.md": "projects/p/docs/a.md",
        "docs/b.md": "projects/p/docs/b.md",
        "AGENTS.md": "projects/p/AGENTS.md",
        ".cursorrules": "projects/p/cursorrules.md",
        ".cursor/rules/py.mdc": "projects/p/cursor/py.md",
        ".github/copilot-instructions.md": "projects/p/copilot-instructions.md",
        "GEMINI.md": "projects/p/GEMINI.md",
    }
    assert "outside" in why(plan, "@~/mine.md")
    assert "not there" in why(plan, "@missing.md")
    data = plan.changes["projects/p/cursor/py.md"]
    assert data is not None
    block = parse_block("x.md", data)
    assert block.description == "Rules of .cursor/rules/py.mdc: Py (for files *.py)"
    assert block.body.endswith("---\nTyped\n")
    assert b'imported_from: "~/src/.cursor/rules/py.mdc"\n' in data


def test_a_cursor_rule_as_its_editor_writes_it_and_the_folder_of_them(tmp_path: Path) -> None:
    rule = "---\ndescription: \nglobs: **/*.ts\nalwaysApply: false\n---\nUse types\n"
    write(tmp_path, {".cursor/rules/deep/ts.mdc": rule})
    for given_path, target in (
        (tmp_path, "projects/p/cursor/deep/ts.md"),
        (tmp_path / ".cursor/rules", "reference/rules/deep/ts.md"),
    ):
        plan = planned(given_path)
        data = plan.changes[target]
        assert data is not None
        assert "Use types (for files **/*.ts)" in parse_block("x.md", data).description


def test_one_file_of_a_project_comes_alone(tmp_path: Path) -> None:
    write(tmp_path, {"CLAUDE.md": "# C\n", "AGENTS.md": "# A\n", ".cursor/rules/x.mdc": "# X\n"})
    assert targets(planned(tmp_path / "AGENTS.md")) == {"AGENTS.md": "projects/p/AGENTS.md"}
    assert targets(planned(tmp_path / ".cursor/rules/x.mdc")) == {
        ".cursor/rules/x.mdc": "projects/p/cursor/x.md"
    }


@pytest.mark.parametrize("length", [100, 5_000])
def test_rules_for_every_project_are_in_the_prompt_only_while_short(tmp_path: Path, length: int) -> None:
    write(tmp_path, {".claude/CLAUDE.md": "# Me\n" + "x" * length, ".claude/projects/a/b.md": "no"})
    for given_path in (tmp_path / ".claude", tmp_path / ".claude/CLAUDE.md"):
        plan = planned(given_path, home=tmp_path)
        folder = "system" if length < 4_000 else "reference"
        assert targets(plan) == {"CLAUDE.md": f"{folder}/imported/claude-CLAUDE.md"}
        assert "holds everywhere" in plan.files[0].note


def test_links_to_each_other_are_one_file_and_links_out_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "out", {"secret.md": "# outside\n"})
    root = write(tmp_path / "in", {"CLAUDE.md": "# C\n"})
    (root / "AGENTS.md").symlink_to("CLAUDE.md")
    (root / "GEMINI.md").symlink_to(outside / "secret.md")
    plan = planned(root)
    assert targets(plan) == {"CLAUDE.md": "projects/p/CLAUDE.md"}
    assert "same text" in why(plan, "AGENTS.md")
    assert "outside" in why(plan, "GEMINI.md")
    write(root, {"notes/a.md": "# A\n"})
    (root / "notes/l.md").symlink_to(outside / "secret.md")
    (root / "notes/d").symlink_to(outside)
    plan = planned(root / "notes")
    assert targets(plan) == {"a.md": "reference/notes/a.md"}
    assert why(plan, "d") == why(plan, "l.md") == "is a symbolic link"


def test_claude_codes_own_memory_keeps_its_front_matter(tmp_path: Path) -> None:
    topic = "---\nname: port\ndescription: Which port\nmetadata:\n  type: project\n---\nPort 8080\n"
    folder = write(
        tmp_path / ".claude/projects/-home-u-app/memory",
        {"MEMORY.md": "# Index\n- [port](port.md)\n", "port.md": topic},
    )
    for given_path in (folder, folder.parent):
        plan = planned(given_path)
        assert targets(plan) == {
            "MEMORY.md": "projects/p/claude-memory/MEMORY.md",
            "port.md": "projects/p/claude-memory/port.md",
        }
    data = plan.changes["projects/p/claude-memory/port.md"]
    assert data is not None
    assert data.replace(b'imported_from: "~/src/port.md"\n', b"") == topic.encode()
    assert parse_block("x.md", data).metadata == {"type": "project"}


def test_letta_codes_first_layout_is_ours_and_replaces_what_a_new_agent_began_with(tmp_path: Path) -> None:
    persona = "---\ndescription: Me\nlimit: 5\n---\nlonger than that\n"
    root = write(
        tmp_path / "memory",
        {
            "system/persona.md": persona,
            "system/human.md": "no front matter",
            "skills/x/run.sh": "#!/bin/sh\n",
            "skills/x/logo.png": b"\x89PNG\r\n\0",
            "reference/a.md": "---\ndescription: A\n---\na\n",
            ".git/config": "x",
        },
    )
    plan = planned(root)
    assert {one.target: one.state for one in plan.files} == dict.fromkeys(
        ["system/persona.md", "system/human.md", "skills/x/run.sh", "reference/a.md"], "new"
    )
    assert plan.changes["system/persona.md"] == persona.encode()
    assert body(plan, "system/human.md") == "no front matter"
    assert "UTF-8" in why(plan, "skills/x/logo.png")


def test_letta_codes_newer_layout_has_the_prompts_files_at_the_top(tmp_path: Path) -> None:
    root = write(
        tmp_path / "agent/memory",
        {
            "MEMORY.md": "# Index\n",
            "persona.md": "---\nname: persona\ndescription: Me\n---\nI am.\n",
            "human.md": "---\nname: human\ndescription: You\n---\nTea.\n",
            "deep/note.md": "---\ndescription: N\n---\nn\n",
        },
    )
    for given_path in (root, root.parent):
        assert targets(planned(given_path)) == {
            "MEMORY.md": "reference/MEMORY.md",
            "persona.md": "system/persona.md",
            "human.md": "system/human.md",
            "deep/note.md": "deep/note.md",
        }


def test_a_vault_keeps_its_tree_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    vault = write(
        tmp_path / "Vault",
        {
            "Daily/2026 01.md": "\n\nPlain words first.\n",
            "Crlf.md": b"# Head\r\nline\r\n",
            "Bom.md": b"\xef\xbb\xbf# Bom\n",
            "Wide.md": "# x".encode("utf-16"),
            "Nul.md": b"a\0b",
            "Latin.md": b"caf\xe9",
            "Merge.md": "<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n",
            "Big.md": b"x" * (2**20 + 1),
            "image.png": b"\x89PNG",
            ".obsidian/app.json": "{}",
            "node_modules/x/README.md": "no",
        },
    )
    plan = planned(vault)
    assert targets(plan) == {
        "Daily/2026 01.md": "reference/Vault/Daily/2026 01.md",
        "Crlf.md": "reference/Vault/Crlf.md",
        "Bom.md": "reference/Vault/Bom.md",
    }
    reasons = {
        "Wide.md": "UTF-16",
        "Nul.md": "NUL",
        "Latin.md": "UTF-8",
        "Merge.md": "conflict markers",
        "Big.md": "larger than 1 MB",
        "image.png": "no Markdown",
        ".obsidian/": "hidden",
        "node_modules/": "programs",
    }
    assert {one.path for one in plan.skipped} == reasons.keys()
    assert all(words in why(plan, path) for path, words in reasons.items())
    assert body(plan, "reference/Vault/Crlf.md") == "# Head\r\nline\r\n"
    data = plan.changes["reference/Vault/Daily/2026 01.md"]
    assert data is not None
    assert parse_block("x.md", data).description == "Plain words first."


def test_e37_a_secret_is_left_out_masked_and_all_else_goes_on(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.md": f"# Keys\n{FAKE_KEY}\n", "b.md": "# No API key here\n"})
    plan = planned(folder, into="notes/")
    assert targets(plan) == {"b.md": "notes/b.md"}
    assert "--allow-secret" in why(plan, "a.md")
    assert FAKE_KEY not in str(plan.skipped)
    assert targets(planned(folder, into="notes/", secret=True)) == {
        "a.md": "notes/a.md",
        "b.md": "notes/b.md",
    }


def test_yours_is_kept_unless_the_person_says_replace(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.md": "# One\n", "b.md": "# Two\n"})
    memory = after(planned(folder, {}, into="n/"), {})
    memory["n/a.md"] += b"what I learned\n"
    write(folder, {"c.md": "# Three\n"})
    plan = planned(folder, memory, into="n/")
    assert {one.target: one.state for one in plan.files} == {
        "n/a.md": "differs", "n/b.md": "same", "n/c.md": "new"
    }  # fmt: skip
    assert plan.changes.keys() == {"n/c.md"}
    plan = planned(folder, memory, into="n/", replace=True)
    assert plan.changes.keys() == {"n/a.md", "n/c.md"}
    assert body(plan, "n/a.md") == "# One\n"


def test_the_same_file_from_another_place_is_the_same(tmp_path: Path) -> None:
    one = write(tmp_path / "one/n", {"a.md": "---\nx: 1\n---\n# A\n"})
    memory = after(planned(one, {}, into="n/"), {})
    source = recognise(one, Path("/nowhere"))
    items, skipped = items_of(source, "", "n/", "n")
    assert not make_plan(Memory(memory, SEED), items, skipped, "/else/where", PERSON).changes


def test_names_that_clash_get_a_number_and_keep_it(tmp_path: Path) -> None:
    folder = write(tmp_path, {"Note.md": "# upper\n", "a/x.md": "# x\n", "b.md/y.md": "# y\n"})
    memory = {"n/note.md": b"mine\n", "n/A/z.md": b"z\n", "n/b.md": b"file\n"}
    plan = planned(folder, memory, into="n/")
    assert targets(plan) == {
        "Note.md": "n/Note-2.md",
        "a/x.md": "n/A/x.md",
        "b.md/y.md": "n/b.md-2/y.md",
    }
    assert not problems_of(memory, plan.changes, PERSON)
    assert not planned(folder, after(plan, memory), into="n/").changes


def test_the_message_names_every_file_and_no_secret(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.md": "# A\n"})
    words = message_of(planned(folder, into="n/"), f"~/{FAKE_KEY}", "markdown")
    assert words.startswith("Import 1 file from ~/")
    assert "n/a.md from a.md" in words
    assert FAKE_KEY not in words


def test_many_of_a_kind_left_out_are_one_line(tmp_path: Path) -> None:
    write(tmp_path, {f"{number}.png": b"x" for number in range(30)})
    [one] = planned(tmp_path).skipped
    assert one.path == "*"
    assert "30 files" in one.why


def test_a_pipe_and_an_unreadable_folder_do_not_stop_it(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "# A\n"})
    os.mkfifo(tmp_path / "pipe.md")
    plan = planned(tmp_path, into="n/")
    assert targets(plan) == {"a.md": "n/a.md"}
    assert why(plan, "pipe.md") == "is not a regular file"


def test_what_is_nothing_is_said(tmp_path: Path) -> None:
    write(tmp_path, {"x.png": b"\x89PNG"})
    for name in ("missing", "x.png"):
        with pytest.raises(UsageError):
            recognise(tmp_path / name, tmp_path)


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=30)
FRONT = st.sampled_from(
    [
        "",
        "---\n",
        "---\nname: x\n---\n",
        "---\n{a: 1}\n---\n",
        "---\nglobs: *.py\n---\n",
        "---\r\nk: v\r\n---\r\n",
        "---\ndescription: d\nlimit: no\n---\n",
        "\ufeff---\nread_only: true\n---\n",
        "---\n- a\n---\n",
        "---\n---\n",
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(FRONT, st.text(max_size=80) | st.binary(max_size=40)), max_size=6))
def test_e31_any_folder_gives_a_plan_that_holds_the_rules_and_is_empty_the_second_time(
    files: dict[str, tuple[str, str | bytes]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, (front, text) in files.items():
            if file in (".", "..") or len(file.encode()) > 200:
                continue
            data = text if isinstance(text, bytes) else text.encode()
            (folder / f"{file}.md").write_bytes(front.encode() + data)
        plan = planned(folder, into="n/", secret=True)
        assert not problems_of(SEED, plan.changes, PERSON)
        kept = after(plan)
        for one in plan.files:
            text = (folder / one.source).read_bytes().decode().removeprefix("\ufeff")
            assert parse_block(one.target, kept[one.target]).description
            made = kept[one.target].decode().removeprefix("\ufeff")
            assert set(text.split("\n")) <= set(made.split("\n"))
        assert not planned(folder, kept, into="n/", secret=True).changes
