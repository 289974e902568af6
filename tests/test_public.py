"""The public surface is small, what `__all__` says, and every name has a sentence of its own."""

import inspect
from importlib.resources import files

import fedtide

SURFACE = {
    "Data",
    "EngineChoice",
    "Evaluation",
    "Experiment",
    "FedTideError",
    "History",
    "Outcome",
    "Study",
    "Train",
    "__version__",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "run",
    "run_study",
}


def test_the_surface_changes_on_purpose_only():
    assert set(fedtide.__all__) == SURFACE


def test_all_names_exist_and_are_documented():
    assert sorted(fedtide.__all__) == fedtide.__all__
    for name in fedtide.__all__:
        item = getattr(fedtide, name)
        assert isinstance(item, str) or inspect.getdoc(item), name


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
