"""The documentation runs: files, commands and Python of every page, in order, in a folder of its own.

A block whose first line is a comment with a file name (`# first.toml`) is that file. TOML without a name
is a part of a study file and must be understood as one. Links lead somewhere, and commands exist.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import fedtide
from fedtide import config, extend
from fedtide.cli import app
from fedtide.run.execute import run_study
from fedtide.run.experiment import Experiment
from fedtide.run.kinds import KINDS, ROOMS
from fedtide.show.report.headline import headline
from tests.cli.command import fedtide as fedtide_command

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/*.md")),
]
LINKED = [*PAGES, ROOT / "CHANGELOG.md", *sorted(ROOT.glob("studies/**/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)
NAME = re.compile(r"# ([\w-]+\.(?:toml|py))\n")


def titled(paths):
    return pytest.mark.parametrize(
        "page", paths, ids=[str(path.relative_to(ROOT)) for path in paths]
    )


@titled([page for page in PAGES if BLOCK.search(page.read_text())])
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # as in Python started there
    before = set(sys.modules)
    for language, body in BLOCK.findall(page.read_text()):
        named = NAME.match(body)
        if named:
            Path(named[1]).write_text(body)
        RUN[language](body, capsys, bool(named))
    for name in set(sys.modules) - before:  # a page's own classes
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run_python(body, capsys, named):
    capsys.readouterr()
    exec(compile(body, "<docs>", "exec"), {"__name__": "docs"})
    assert capsys.readouterr().out or named


def run_commands(body, capsys, named):
    for line in body.splitlines():
        command, *arguments = shlex.split(line, comments=True)
        assert command == "fedtide"
        quick = ["--jobs", "1"] if arguments[0] == "run" else []  # other processes start slowly
        done = CliRunner().invoke(app, [*arguments, *quick])
        assert done.exit_code == 0, (line, done.output, done.exception)


def read_toml(body, capsys, named):
    table = tomllib.loads(body)
    assert table
    if not named and "project" not in table:  # of a pyproject.toml
        train = table.setdefault("train", {})
        if not {"steps", "epochs"} & set(train):
            train["steps"] = 1
        assert config.study("docs", table).cells


def read_json(body, capsys, named):
    assert json.loads(body)


RUN = {"python": run_python, "sh": run_commands, "toml": read_toml, "json": read_json}


@titled(LINKED)
def test_links(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@titled(PAGES)
def test_commands_exist(page):
    text = page.read_text()
    for line in re.findall(r"(?:`|^)(fedtide [^`<#\n]*)", text, re.M):
        command, words = get_command(app), line.split()[1:]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands") or not words or words[0].startswith("-"), line
        options = {name for option in command.params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= {*options, "--help"}, line
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.S | re.M)


def test_every_section_of_a_study_file_is_described():
    """With a heading of its own, an example that runs, and all settings of sections without kinds."""
    text = (ROOT / "docs" / "studies.md").read_text()
    described, top = dict(SECTION.findall(text)), text.partition("### At the top")[2]
    described |= dict.fromkeys(
        ("question", "transition_rounds", "recovery", "target", "columns", "track"), top
    )
    hints = get_type_hints(Experiment)
    names = [*(field.name for field in fields(Experiment)), *config.STUDY_KEYS]
    assert set(names) == set(described)
    for name in names:
        examples = [tomllib.loads(body) for kind, body in BLOCK.findall(described[name])]
        assert any(name in table for table in examples), name
        if is_dataclass(hints.get(name)) and hints[name] not in KINDS:
            missing = [key for key in config.settings(hints[name]) if key not in described[name]]
            assert not missing, (name, missing)


QUICKSTART = ROOT / "studies" / "quickstart.toml"
SHOWS_QUICKSTART = titled([ROOT / "README.md", ROOT / "docs" / "tutorial.md"])


@SHOWS_QUICKSTART
def test_the_first_study_is_the_quickstart(page):
    """The block says it is studies/quickstart.toml: it is, word for word, but for the comment on top."""
    body = next(body for kind, body in BLOCK.findall(page.read_text()))
    title, _, rest = body.partition("\n")
    assert title == "# studies/quickstart.toml"
    assert rest == QUICKSTART.read_text().partition("start from?\n")[2]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What `fedtide run studies/quickstart.toml` prints from the first table on to the answer."""
    done = fedtide_command("run", QUICKSTART, cwd=tmp_path_factory.mktemp("quick"), COLUMNS="80")
    assert done.returncode == 0, done.stderr
    return re.search(r"^quickstart: mean .*?(?=^Report: )", done.stdout, re.M | re.S)[0]


@SHOWS_QUICKSTART
def test_what_the_quickstart_prints_is_shown(page, printed):
    shown = re.search(r"^```\n(quickstart: mean .*?)^```", page.read_text(), re.M | re.S)[1]
    assert_same_but_rounding(shown, printed)


GALLERY = sorted(ROOT.glob("studies/gallery/*.toml"))


def test_the_gallery_has_every_study_with_question_picture_and_answer():
    page = (ROOT / "docs" / "gallery.md").read_text()
    entries = re.findall(
        r"## (.+)\n\n!\[.+\]\((pictures/gallery/(\w+)\.png)\)\n\n\*\*[^*]+\.\*\* .+/\3\.toml\)\n",
        page,
    )
    questions = {path.stem: tomllib.loads(path.read_text())["question"] for path in GALLERY}
    assert {name: question for question, _, name in entries} == questions
    assert len(entries) == page.count("\n## ") == len(GALLERY) == 10
    assert all((ROOT / "docs" / picture).stat().st_size for _, picture, _ in entries)


def test_an_answer_of_the_gallery_is_that_of_the_study(tmp_path):
    """The study is run; rounding depends on the processor, so numbers are compared, not their digits."""
    done = run_study(config.load(ROOT / "studies/gallery/nights.toml"), tmp_path, jobs=1)
    page = (ROOT / "docs" / "gallery.md").read_text()
    answer = re.search(r"nights\.png\)\n\n\*\*(.+?)\*\*", page)[1]
    assert_same_but_rounding(answer, headline(done.results)[0])


NUMBER = re.compile(r"\d+\.?\d*")


def assert_same_but_rounding(shown, made, points=2.0):
    """Two texts with the same words, whose numbers differ by no more than rounding explains."""
    words = [NUMBER.sub("0", " ".join(text.split())) for text in (shown, made)]
    assert words[0] == words[1]
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(made), strict=True)
    assert all(abs(float(one) - float(other)) <= points for one, other in pairs)


def test_every_page_is_once_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = re.findall(r": (\S+\.md)$", menu, re.M)
    assert len(pages) == len(set(pages))
    assert {path.name for path in ROOT.glob("docs/*.md")} <= set(pages)


@titled([ROOT / "README.md", ROOT / "docs" / "tutorial.md"])
def test_the_environment_is_activated_before_the_first_command(page):
    text = page.read_text()
    first = min(text.find(form) for form in ("`fedtide ", "\nfedtide ") if form in text)
    assert 0 < text.find("source .venv/bin/activate") < first


def test_no_command_opens_flower_to_a_network():
    """Who reaches a SuperLink can run code: it listens on 127.0.0.1, clients come through a tunnel."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    files = [*PAGES, *ROOT.glob("examples/deployment/*"), *ROOT.glob("src/fedtide/deploy/*.py")]
    texts = [path.read_text().replace("\\\n", " ") for path in files]
    assert all("0.0.0.0" not in text for text in texts if "deploy" in text)
    places = [
        each
        for text in texts
        for each in re.findall(r"--(?:server|superlink)[ =]([^`\s\"]+)", text)
    ]
    assert all(place.startswith(("127.0.0.1", "{")) for place in places)
    assert "-L 127.0.0.1:8000:127.0.0.1:8000" in page
    assert "never open the SuperLink's port to a network" in page


def test_the_version_is_the_same_everywhere():
    number = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    changes = re.findall(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert re.findall(r"^version: (.+)", citation, re.M) == [number]
    assert changes[0] == number


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as a site; building it must not give a warning."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_the_site_has_pages_from_outside_and_fetches_nothing(site):
    assert 'href="studies/papers/dimc/index.html"' in (site / "papers.html").read_text()
    for page in site.glob("*.html"):
        assert not re.search(r'(src|<link[^>]* href)="https?://', page.read_text()), page.name


@pytest.mark.parametrize(("page", "module"), [("api", fedtide), ("api-extend", extend)])
def test_the_api_reference_has_every_public_name(page, module, site):
    text = (site / f"{page}.html").read_text()
    described = set(re.findall(r"(?:doc-object-name[^>]*|<td><code)>(\w+)<", text))
    assert set(module.__all__) - {"__version__"} <= described


def test_the_reference_of_kinds_has_every_kind(site):
    text = (site / "kinds.html").read_text()
    for kinds in ROOMS.values():
        for name, kind in kinds.built_in.items():
            assert f"<code>{name}</code></td>\n<td><code>{kind.__name__}</code>" in text


def test_the_reference_of_the_command_line_has_every_command(site):
    page = (site / "command-line.html").read_text()
    for name, command in get_command(app).commands.items():
        for inner in getattr(command, "commands", {"": None}):
            assert f'id="{" ".join(["fedtide", name, inner]).strip().replace(" ", "-")}"' in page


def test_search_works_in_pages_that_are_opened_as_files(site, chromium):
    page = chromium.new_page()
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").type("stragglers")
    page.wait_for_selector(".md-search-result__item a[href*='network.html']", timeout=120_000)
    page.close()
