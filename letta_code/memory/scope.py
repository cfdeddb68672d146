"""Which memory holds for which project: `projects/<slug>/` for one, everything else for all. Pure."""

from __future__ import annotations

PROJECTS = "projects/"
"""The folder that holds a folder for each project."""

OVERVIEW = "overview.md"
"""The file of a project's folder that its conversations begin with."""


def project_folder(slug: str) -> str:
    """The memory folder of the project `slug`, with its final slash."""
    return f"{PROJECTS}{slug}/"


def overview_path(slug: str) -> str:
    """The file that a conversation in the project `slug` begins with."""
    return project_folder(slug) + OVERVIEW


def scope_of(path: str, current_slug: str) -> str:
    """Where a memory file holds, in words: "this project", "the project NAME" or "every project".

    `path` is relative to the memory folder; `current_slug` is empty where no project is open.
    """
    rest = path.removeprefix(PROJECTS)
    slug, slash, _ = rest.partition("/")
    if rest == path or not slash or not slug:
        return "every project"
    return "this project" if slug == current_slug else f"the project {slug}"
