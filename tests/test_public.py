"""The public surface is small, what `__all__` says, and every name has a sentence of its own."""

import ast
import inspect
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import fedtide
from fedtide import extend
from fedtide.run.kinds import KINDS

ROOT = Path(__file__).parent.parent
SHOWN = [  # code that users and authors read
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("examples/*.py")),
    *sorted(ROOT.glob("studies/**/*.py")),
]
SURFACE = {
    "Cell",
    "Checkpointing",
    "Data",
    "Evaluation",
    "Experiment",
    "Faults",
    "FedTideError",
    "Fleet",
    "FlowerSettings",
    "History",
    "OneOf",
    "Outcome",
    "Personalise",
    "Privacy",
    "Between",
    "Study",
    "Train",
    "Tune",
    "Tuned",
    "__version__",
    "from_files",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "load_model",
    "run",
    "run_study",
    "tune_study",
}


def test_the_surface_changes_on_purpose_only():
    assert set(fedtide.__all__) == SURFACE


def test_every_built_in_kind_is_a_public_name():
    for kinds in KINDS.values():
        for kind in kinds.built_in.values():
            assert getattr(fedtide, kind.__name__) is kind


def test_type_checkers_see_the_same_names():
    stub = files("fedtide").joinpath("__init__.pyi").read_text()
    listed = {line.rpartition(" as ")[2] for line in stub.splitlines() if " as " in line}
    assert listed | {"__version__"} == set(dir(fedtide))


def test_what_authors_import_exists_and_is_documented():
    for name in extend.__all__:
        item = getattr(extend, name)
        assert item is extend.Vector or not inspect.isclass(item) or inspect.getdoc(item), name


def test_all_names_exist_and_are_documented():
    assert sorted(fedtide.__all__) == fedtide.__all__
    for name in fedtide.__all__:
        item = getattr(fedtide, name)
        assert isinstance(item, str) or inspect.getdoc(item), name


def test_a_name_is_the_same_in_whatever_order_things_are_imported():
    """`run` is a function and a package: importing from the package must not hide the function."""
    code = "import fedtide.run.loop, fedtide; assert callable(fedtide.run)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="module 'fedtide' has no attribute 'walk'"):
        _ = fedtide.walk


def test_all_names_are_typed():
    assert files("fedtide").joinpath("py.typed").is_file()
    for name in fedtide.__all__:
        item = getattr(fedtide, name)
        if inspect.isfunction(item):
            signature = inspect.signature(item)
            hints = [p.annotation for p in signature.parameters.values()]
            assert inspect.Signature.empty not in [*hints, signature.return_annotation], name


def test_importing_does_not_touch_torch_threads_or_seeds():
    import torch

    before = torch.get_num_threads(), torch.get_rng_state()
    from fedtide.population.sessions import Fixed

    fedtide.run(
        fedtide.Experiment(population=Fixed(clients=2, rounds=1), train=fedtide.Train(steps=1))
    )
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize("path", SHOWN, ids=[str(path.relative_to(ROOT)) for path in SHOWN])
def test_examples_docs_and_studies_import_public_modules_only(path):
    for module in imported(path):
        assert module.split(".")[0] != "fedtide" or module in ("fedtide", "fedtide.extend"), module


def imported(path):
    """The modules that a Python file, or the Python blocks of a page, import."""
    text = path.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    for code in blocks if path.suffix == ".md" else [text]:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


def test_the_test_of_imports_finds_both_forms(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport fedtide.run.loop\nfrom fedtide.core.types import Ids\n```\n")
    assert list(imported(page)) == ["fedtide.run.loop", "fedtide.core.types"]
