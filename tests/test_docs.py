"""Every code block of the documentation runs, every TOML block parses, every link leads somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

PAGES = [Path("README.md"), Path("CONTRIBUTING.md"), *sorted(Path("docs").glob("*.md"))]
BLOCKS = [
    pytest.param(language, body, id=f"{page}-{number}")
    for page in PAGES
    for number, (language, body) in enumerate(
        re.findall(r"```(\w+)\n(.*?)```", page.read_text(), re.S)
    )
]


@pytest.mark.parametrize(("language", "body"), BLOCKS)
def test_blocks(language, body, capsys):
    if language == "python":
        exec(compile(body, "<docs>", "exec"), {"__name__": "docs"})
        assert capsys.readouterr().out
    elif language == "toml":
        assert tomllib.loads(body)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
