"""Add metadata that depend on the address of the repository to pyproject.toml.

These are URLs, and links in the README.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["apiext"]["repository"]
PLACES = {
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Issues": "/issues",
    "Changelog": "/blob/main/docs/CHANGELOG.md",
}
RELATIVE = re.compile(r"(!?)\[([^\]]+)\]\((?![a-z]+:|#)([^)]+)\)")


def described() -> str:
    """Return the README with absolute links into the repository.

    If the address of the repository is unknown, return the README without such links.
    """
    return RELATIVE.sub(_linked, (ROOT / "README.md").read_text(encoding="utf-8"))


def _linked(found: re.Match[str]) -> str:
    image, text, path = found.groups()
    return f"{image}[{text}]({REPOSITORY}/{'raw' if image else 'blob'}/main/{path})" if REPOSITORY else text


setup(
    long_description=described(),
    long_description_content_type="text/markdown",
    project_urls={name: REPOSITORY + place for name, place in PLACES.items() if REPOSITORY},
)
