"""The page of a memory: all of it is there, it loads nothing, and nothing in memory becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from letta_code.memory.edits import Create
from letta_code.memory.git.repository import MemoryRepository, Provenance
from letta_code.memory.page.content import COMMITS, TEXT, About, collect
from letta_code.memory.page.diff import split_patch
from letta_code.memory.page.html import page_html
from tests.memory.conftest import AGENT, Git


def words(text: str) -> set[str]:
    return set(text.split(" "))


VOID = {"meta", "input", "br", "hr", "rect"}
ELEMENTS = words(
    "html head meta title style body a header p h1 h2 h3 h4 h5 h6 bdi fieldset legend label input span "
    "dl div dt dd code time strong em s svg rect ul ol li nav b main section article details summary "
    "pre ins del table thead tbody tr th td blockquote hr br footer script"
)
ATTRIBUTES = words(
    "lang charset http-equiv content name class href id for type checked hidden autocomplete spellcheck "
    "title placeholder role aria-label aria-hidden focusable width height open data-find dir tabindex start"
)
CLASSES = re.compile(r"[a-z][a-z -]*|language-.*", re.DOTALL)


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str = "", cls: str = "") -> list[Element]:
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if tag in ("", child.tag) and (
                    not cls or cls in (child.attributes.get("class") or "").split()
                ):
                    found.append(child)
                found += child.all(tag, cls)
        return found


class Reader(HTMLParser):
    """Builds the tree; an end tag that closes nothing that is open is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(html: str) -> Element:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert len(reader.open) == 1
    return reader.open[0]


def page_of(repository: MemoryRepository, about: About | None = None) -> Element:
    root = read(page_html(collect(repository, about or About("Ada"))))
    assert_harmless(root)
    return root


def assert_harmless(root: Element) -> None:
    """Only elements and attributes of ours, no address of anything, one script and one style: those that the
    policy names."""
    elements = root.all()
    assert {element.tag for element in elements} <= ELEMENTS
    assert {name for element in elements for name in element.attributes} <= ATTRIBUTES
    ids = {element.attributes["id"] for element in elements if "id" in element.attributes}
    for element in elements:
        if "href" in element.attributes:
            target = element.attributes["href"] or ""
            assert target[:1] == "#"
            assert target[1:] in ids
        assert CLASSES.fullmatch(element.attributes.get("class") or "x")
    (script,), (style,) = root.all("script"), root.all("style")
    (policy,) = [m for m in root.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    said = policy.attributes["content"] or ""
    assert said.startswith("default-src 'none'; ")
    for part, element in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{part} 'sha256-{digest}';" in said
    assert "url(" not in style.text
    assert "@import" not in style.text


def file_of(root: Element, path: str) -> Element:
    (found,) = [a for a in root.all("article") if a.all("h3")[0].text == path]
    return found


def raw(article: Element) -> str:
    (details,) = article.all("details", "raw")
    # A parser of HTML drops the newline that begins a `pre`.
    return details.all("pre")[0].text.removeprefix("\n")


def test_every_file_is_there_formatted_and_raw(repository: MemoryRepository) -> None:
    body = "# Build\n\n- `make`\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n说中文。\n"
    repository.commit(Create("notes/build.md", "How to build.", body), "Learned to build", AGENT)
    root = page_of(repository)
    snapshot = repository.snapshot()
    assert {a.all("h3")[0].text for a in root.all("article")} == set(snapshot.entries)
    for path in snapshot.entries:
        assert raw(file_of(root, path)) == snapshot.read(path).decode()
    (prose,) = file_of(root, "notes/build.md").all("div", "prose")
    assert [h.text for h in prose.all("h4")] == ["Build"]
    assert [c.text for c in prose.all("td")] == ["1", "2"]
    assert prose.all("td", "right")[0].text == "2"
    assert "说中文。" in prose.text
    assert "How to build." in file_of(root, "notes/build.md").text


def test_where_a_file_reaches_the_model_and_what_it_costs_is_said(
    repository: MemoryRepository, git: Git
) -> None:
    folder = repository.worktree
    (folder / "system" / "secret.md").write_text("---\ndescription: d\nhidden: true\n---\nx\n")
    (folder / "skills" / "release").mkdir(parents=True)
    (folder / "skills" / "release" / "SKILL.md").write_text("---\ndescription: d\n---\nx\n")
    git("add", "-A")
    git("commit", "-m", "by hand")
    page = collect(repository, About("Ada", window=1_000))
    where = {file.path: file.where for file in page.files}
    assert where == {
        "system/human.md": "always",
        "system/persona.md": "always",
        "system/secret.md": "hidden",
        "reference/build.md": "listed",
        "skills/release/SKILL.md": "skill",
    }
    shares = {file.path: file.share for file in page.files}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["reference/build.md"] == 0
    root = page_of(repository, About("Ada", window=1_000))
    assert f"about {page.tokens} tokens" in root.text
    assert "of the model’s window of 1,000" in root.text
    assert "9 of" not in file_of(root, "system/secret.md").text
    assert "of 40 characters" in file_of(root, "system/human.md").text


def test_history_shows_who_when_why_source_and_the_diff(repository: MemoryRepository) -> None:
    first = repository.head()
    made = repository.commit(
        Create("notes/tea.md", "Tea.", "Oolong.\n"),
        "She said so\n\nTwice.",
        AGENT,
        Provenance(agent="agent-1", conversation="conv-12345678-1", source="inferred"),
    )
    root = page_of(repository, About("Ada", waiting=frozenset({made.revision})))
    newest, oldest = root.all("li", "commit")
    assert newest.all("h3")[0].text == "She said so"
    assert "Twice." in newest.text
    assert [b.text for b in newest.all("span", "badge")] == ["inferred", "not reviewed"]
    assert made.revision in [c.attributes.get("title") for c in newest.all("code")]
    assert [line.text for line in newest.all("ins")] == ["+---", "+description: Tea.", "+---", "+Oolong."]
    assert newest.all("h4")[0].text == "notes/tea.md new"
    assert first in [c.attributes.get("title") for c in oldest.all("code")]
    assert "+Likes tea." in [line.text for line in oldest.all("ins")]
    tea = file_of(root, "notes/tea.md")
    assert "1 not reviewed" in tea.text
    (past,) = tea.all("details", "past")
    assert past.all("a")[0].attributes["href"] == f"#{newest.attributes['id']}"


def test_problems_are_shown_with_the_text_of_the_file(repository: MemoryRepository, git: Git) -> None:
    text = "---\ndescription: [oops\n---\nStill readable.\n"
    (repository.worktree / "system" / "human.md").write_text(text)
    git("commit", "--no-verify", "-qam", "typed in a hurry")
    root = page_of(repository)
    (section,) = root.all("section", "problems")
    assert "system/human.md" in section.text
    assert "not valid YAML" in section.text
    assert raw(file_of(root, "system/human.md")) == text


def test_e37_secrets_that_got_in_are_masked_everywhere(repository: MemoryRepository, git: Git) -> None:
    key = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    (repository.worktree / "system" / "human.md").write_text(f"---\ndescription: {key}\n---\nToken {key}\n")
    git("commit", "--no-verify", "-qam", f"Remember {key}")
    html = page_html(collect(repository, About(key)))
    assert key not in html
    assert "Token ghp_" in html


def test_links_leave_the_page_nowhere_and_lead_inside_it(repository: MemoryRepository) -> None:
    body = (
        "[tea](../system/human.md) [plain](human) [out](https://evil.example/?q=1) <https://auto.example>\n"
        "![picture](https://evil.example/p.png) [bad](javascript:alert(1)) [data](data:text/html,x)\n"
        "[root](reference/build.md)\n"
    )
    repository.commit(Create("notes/links.md", "Links.", body), "Links", AGENT)
    root = page_of(repository)
    (prose,) = file_of(root, "notes/links.md").all("div", "prose")
    targets = [a.attributes["href"] for a in prose.all("a")]
    assert targets == [
        f"#{file_of(root, path).attributes['id']}" for path in ("system/human.md", "reference/build.md")
    ]
    assert "https://evil.example/?q=1" in prose.text
    assert "https://evil.example/p.png" in prose.text
    assert prose.text.count("https://auto.example") == 1


def test_names_and_reasons_that_would_be_markup_or_steer_are_written_out(
    repository: MemoryRepository, git: Git
) -> None:
    names = [
        '<img src=x onerror="alert(1)">.md',
        "a\nb.md",
        "\u202egnp.md",
        "'\" onclick=x.md",
        "__proto__.md",
    ]
    for name in names:
        (repository.worktree / name).write_text("x</script><script>alert(1)</script>\x1b[31m\r\nz\n")
    git("add", "-A")
    git("commit", "--no-verify", "-qm", "</title><script>alert(2)</script>\x1b]0;x\x07 \u202e")
    raw_name = bytes(repository.worktree) + b"/\xff\xfe.md"
    Path(raw_name.decode("utf-8", "surrogateescape")).write_text("odd")
    git("add", "-A")
    git("commit", "--no-verify", "-qm", "odd name")
    html = page_html(collect(repository, About("</title><script>x</script>")))
    html.encode("utf-8")
    root = read(html)
    assert_harmless(root)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", html)
    shown = {a.all("h3")[0].text for a in root.all("article")}
    assert {names[0], "a\\nb.md", "\\u202egnp.md", names[3], "__proto__.md"} <= shown


PAYLOADS = words(
    "</script> <script>alert(1)</script> <img/src=x/onerror=alert(1)> </pre> </details> </style> <!-- "
    "--> <![CDATA[ [a](javascript:x) ![b](http://x/y) [c](//x) `` ~~~ | ' < > & &lt; &#60; &#x6a; [r]: "
    'http://x/ [r] # - 1. ``` *a* ~~b~~ {{x}} {%x%} \u202e 中 \t " <http://a.b/"onclick=x>'
)
MARKUP = st.lists(st.sampled_from(sorted(PAYLOADS)) | st.text(max_size=8), max_size=20).map("".join)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=MARKUP, reason=MARKUP, glue=st.sampled_from(["", "\n"]))
def test_no_memory_becomes_markup(repository: MemoryRepository, body: str, reason: str, glue: str) -> None:
    text, why = glue.join(body).encode("utf-8", "replace"), reason_of(reason)
    commands = (
        b"commit refs/heads/main\ncommitter P <p@x> 2000000000 +0000\n"
        + f"data {len(why)}\n".encode()
        + why
        + f"\nfrom {repository.head()}\n".encode()
        + b"".join(
            f"M 100644 inline {path}\ndata {len(text)}\n".encode() + text + b"\n"
            for path in ("system/human.md", "notes/a.txt")
        )
    )
    fast_import(repository, commands)
    page_of(repository, About(reason))


def reason_of(text: str) -> bytes:
    return f"Why: {text}".encode("utf-8", "replace").replace(b"\0", b"")


def fast_import(repository: MemoryRepository, commands: bytes) -> None:
    words = ["git", "--git-dir", str(repository.git_dir), "fast-import", "--quiet", "--force"]
    subprocess.run(words, input=commands, check=True)


def test_a_page_that_would_be_too_large_says_what_it_leaves_out(tmp_path: Path) -> None:
    files = {
        "system/human.md": "Likes tea.\n",
        "notes/big.txt": "x" * (TEXT + 1),
        "notes/small.md": "Small.\n",
    }
    repository = MemoryRepository.create(tmp_path / "repo.git", tmp_path / "memory", files, AGENT, "Begin")
    root = page_of(repository)
    assert [a.all("h3")[0].text for a in root.all("article")] == ["system/human.md", "notes/small.md"]
    assert "big.txt" in root.all("div", "tree")[0].text
    (notes,) = root.all("ul", "notes")
    assert "1 files are named without their text" in notes.text


def test_a_long_history_is_cut_and_says_so(repository: MemoryRepository) -> None:
    commits = "".join(
        f"commit refs/heads/main\ncommitter P <p@x> {2_000_000_000 + n} +0000\ndata 2\nc\n"
        + (f"from {repository.head()}\n" if n == 0 else "")
        + f"M 100644 inline notes/n.md\ndata {len(str(n))}\n{n}\n"
        for n in range(COMMITS + 20)
    )
    fast_import(repository, commits.encode())
    root = page_of(MemoryRepository.open(repository.git_dir))
    assert len(root.all("li", "commit")) == COMMITS
    assert f"the last {COMMITS} commits" in root.all("ul", "notes")[0].text
    assert f"{COMMITS} commits" in file_of(root, "notes/n.md").text


def test_a_diff_is_split_by_file_whatever_its_lines_look_like(repository: MemoryRepository, git: Git) -> None:
    folder = repository.worktree
    (folder / "a b.txt").write_text("-- a/x\ndiff --git a/y b/y\n@@ -1 +1 @@\n")
    (folder / "文.txt").write_text("1\n")
    git("add", "-A")
    git("commit", "--no-verify", "-qm", "one")
    (folder / "a b.txt").write_text("++ b/x\n")
    (folder / "文.txt").unlink()
    git("commit", "-qam", "two")
    patch = git("-c", "core.quotePath=false", "show", "--format=", "HEAD")
    files = [(one.path, one.state) for one in split_patch(patch)]
    assert files == [("a b.txt", ""), ("文.txt", "deleted")]
    removed = [line.text for line in split_patch(patch)[0].lines if line.kind == "remove"]
    assert removed == ["--- a/x", "-diff --git a/y b/y", "-@@ -1 +1 @@"]
    assert [line.text for line in split_patch(patch)[0].lines if line.kind == "add"] == ["+++ b/x"]
    page_of(repository)


def test_the_same_memory_and_page_are_the_same_text(repository: MemoryRepository) -> None:
    again = MemoryRepository.open(repository.git_dir)
    about = About("Ada", window=100)
    assert page_html(collect(repository, about)) == page_html(collect(again, about))
