"""The first files of a new agent's memory. Short: they are in every request."""

from __future__ import annotations

from letta_code.memory.blocks import new_block

START = "Start memory"
"""The reason of the commit that they come with."""

_PERSONA = """\
I am a coding agent who keeps working with the same person. I am direct, careful with what is not mine, and
I check before I claim. What I learn I write down at once, so that nobody has to tell me twice.
"""

_HUMAN = """\
Nothing is known yet. Record here, in a line each, what holds in every project: name and role, how they like
to work and be answered, tools they prefer, what they corrected me on. Replace this text with the first entry.
"""

_PROJECT = """\
Nothing is known yet. One line per project: its name and its folder, `projects/<slug>/`, and nothing that only
concerns that project: the folder's `overview.md` opens every conversation there. Replace this text with the
first entry.
"""


def default_files() -> dict[str, str]:
    """Path to text of the files a new agent starts with."""
    return {
        "system/persona.md": _file("system/persona.md", "Who I am and how I work.", _PERSONA),
        "system/human.md": _file("system/human.md", "The person: preferences that hold everywhere.", _HUMAN),
        "system/project.md": _file(
            "system/project.md", "Which projects I know and where their notes are.", _PROJECT
        ),
    }


def _file(path: str, description: str, body: str) -> str:
    return new_block(path, description, body).decode("utf-8")
