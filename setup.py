"""Adds to pyproject.toml the metadata that depend on the address of the repository: URLs, and links of the README."""

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
RELATIVE = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)]+)\)")


def described() -> str:
    """Return the README with absolute links into the repository; as long as that has no address, without such links."""
    linked = rf"[\1]({REPOSITORY}/blob/main/\2)" if REPOSITORY else r"\1"
    return RELATIVE.sub(linked, (ROOT / "README.md").read_text(encoding="utf-8"))


setup(
    long_description=described(),
    long_description_content_type="text/markdown",
    project_urls={name: REPOSITORY + place for name, place in PLACES.items() if REPOSITORY},
)
