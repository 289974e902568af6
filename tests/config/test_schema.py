"""The JSON Schema accepts what FedTide accepts, and refuses common mistakes."""

import tomllib
from pathlib import Path

import jsonschema
import pytest

from fedtide.config.schema import study_schema
from tests.worlds import study_files

STUDIES = study_files(Path(__file__).parents[2] / "studies")


@pytest.fixture(scope="module")
def checker():
    schema = study_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_fits(checker, path):
    checker.validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        'algoritm = "fedavg"',
        'algorithm = "fedprocks"',
        "[train]\nstepps = 3",
        '[train]\nsteps = "three"',
        '[algorithm]\nkind = "fedprox"\nmuu = 1.0',
        '[data]\npartition = { kind = "dirichlet", alpha = "low" }',
        '[data]\nnormalise = "perhaps"',
    ],
)
def test_mistakes_are_found(checker, text):
    assert not checker.is_valid(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        'algorithm = "own.py:Own"',
        '[algorithm]\nkind = "own.py:Own"\nanything = 1',
        '[engine]\nkind = "loop"\nactors = 2',
        "[algorithm]\nmu = 1.0\n[compare]\nalgorithm.kind = ['fedprox', 'm-fedprox']",
    ],
)
def test_what_fedtide_accepts_fits(checker, text):
    checker.validate(tomllib.loads(text))
