"""The public surface is what `__all__` says, and every name has a sentence of its own."""

import inspect

import fedtide


def test_all_names_exist_and_are_documented():
    assert sorted(fedtide.__all__) == fedtide.__all__
    for name in fedtide.__all__:
        item = getattr(fedtide, name)
        assert isinstance(item, str) or inspect.getdoc(item), name


def test_importing_does_not_touch_torch_threads_or_seeds():
    import torch

    before = torch.get_num_threads(), torch.get_rng_state()
    from fedtide.population.sessions import Fixed

    fedtide.run(
        fedtide.Experiment(population=Fixed(clients=2, rounds=1), train=fedtide.Train(steps=1))
    )
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
