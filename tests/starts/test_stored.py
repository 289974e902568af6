"""Archives that last: a run goes on among the models of an earlier one."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from fedtide import Data, Experiment, Linear, Mlp, Train, config, run, run_study
from fedtide.core.errors import ConfigError
from fedtide.population.sessions import Pattern
from fedtide.run import reuse
from fedtide.starts import ArchiveAverage, Previous, Similarity, Soup
from fedtide.starts.archive import All, Diverse
from tests.worlds import timeless

SESSIONS = ((0, 1, 2), (3, 4), (0, 1, 2), (3, 4), (0, 1, 2, 3))
WHOLE = Experiment(
    data=Data(name="digits", partition="dirichlet"),
    population=Pattern(clients=5, sessions=SESSIONS, rounds=3),
    train=Train(
        model="linear", lr=0.2, batch_size=10_000, steps=2
    ),  # the same batch in every round
    start=Soup(),
    seed=2,
)
STARTS = {
    "soup": Soup(),
    "average": ArchiveAverage(P=1),
    "similarity": Similarity(),
    "previous": Previous(),
}


def after(e, sessions, **changes):
    population = replace(e.population, sessions=SESSIONS[sessions])
    return replace(e, population=population, **changes)


@pytest.mark.parametrize("name", STARTS)
def test_the_first_start_is_that_of_a_run_that_went_on(name, tmp_path):
    e = replace(WHOLE, start=STARTS[name])
    whole = run(e)
    run(after(e, slice(0, 3))).save_archive(tmp_path / "kept")
    start = replace(e.start, archive=str(tmp_path / "kept"))
    second = run(after(e, slice(3, 5), start=start))
    for mine, theirs in zip(second.rounds, whole.rounds[9:], strict=True):
        keys = ("accuracy", "loss", "start", "start_from", "start_weights", "start_losses")
        assert set(keys) & set(mine) == set(keys) & set(theirs)
        for key in set(keys) & set(mine):
            # Batches have the same examples in another order: equal up to rounding.
            assert mine[key] == pytest.approx(theirs[key], rel=1e-5, abs=1e-9), key
    torch.testing.assert_close(second.model.x, whole.model.x, rtol=1e-5, atol=1e-6)


def test_from_run_to_run(tmp_path, monkeypatch):
    """The archive of a run is in its folder; another archive is another run."""
    monkeypatch.setattr(reuse, "is_dirty", lambda: False)
    plan = config.study("first", {**TABLE, "start": "soup"})
    first = run_study(plan, tmp_path, jobs=1).folder
    (kept,) = first.path.glob("cells/*/*/archive")
    told = json.loads((kept / "archive.json").read_text())
    assert [one["session"] for one in told["sessions"]] == [0, 1]
    table = {**TABLE, "start": {"kind": "soup", "archive": str(kept)}}
    second = run_study(config.study("second", table), tmp_path, jobs=1)
    (lines,) = second.results.rows[0].runs.values()
    assert [line["start"] for line in lines if "start" in line] == [2, 3]
    again = run_study(config.study("second", table), tmp_path, jobs=1)
    assert sum(again.taken.whole.values()) == 1
    (kept / "current-0001.safetensors").write_bytes((kept / "0000.safetensors").read_bytes())
    changed = run_study(config.study("second", table), tmp_path, jobs=1)
    assert not changed.taken.whole


TABLE = {
    "population": {"kind": "alternating", "clients": 3, "sessions": 2, "rounds": 2},
    "train": {"steps": 2, "model": "linear"},
}


@pytest.mark.parametrize("keep", [All(), Diverse(H=9)])
def test_a_similarity_start_without_gradients_makes_its_own(tmp_path, keep):
    """Its first session is the pilot, as if it had begun then; models without a gradient are not compared."""
    run(after(WHOLE, slice(0, 2))).save_archive(tmp_path)
    start = Similarity(archive=str(tmp_path), keep=keep)
    lines = run(after(WHOLE, slice(0, 5), start=start)).rounds[::3]
    assert [line.get("gradient_rounds", 0) for line in lines] == [0, 1, 1, 1, 1]
    assert [line.get("start_from") for line in lines] == [None, None, [3], [3, 4], [3, 4, 5]]


def test_the_folder_of_a_run_is_no_archive(tmp_path):
    run(after(WHOLE, slice(0, 2))).save_archive(tmp_path / "archive")
    with pytest.raises(ConfigError, match=r"the folder of a run\. Write '.*archive'"):
        run(replace(WHOLE, start=Soup(archive=str(tmp_path))))


def test_own_models(tmp_path):
    """Models of any origin: the soup takes the one that suits the clients."""
    trained = run(after(WHOLE, slice(0, 1), train=replace(WHOLE.train, lr=0.5)))
    for name, x in (("a", trained.model.x), ("b", torch.zeros_like(trained.model.x))):
        save_file(
            {n: t.clone() for n, t in trained.layout.unpack(x).items()},
            tmp_path / f"{name}.safetensors",
        )
    line = run(after(WHOLE, slice(0, 1), start=Soup(archive=str(tmp_path)))).rounds[0]
    assert (line["start_from"], line["start_weights"]) == ([1, 0], [0.0, 1.0])


def test_what_clients_keep_begins_anew(tmp_path):
    """The second run repeats itself bit for bit, as any run does."""
    run(after(WHOLE, slice(0, 2))).save_archive(tmp_path / "kept")
    e = after(WHOLE, slice(2, 5), algorithm="scaffold", start=Soup(archive=str(tmp_path / "kept")))
    one, other = run(e), run(e)
    assert timeless(one.rounds) == timeless(other.rounds)


def test_wrong_archives(tmp_path):
    kept = tmp_path / "kept"
    run(after(WHOLE, slice(0, 3), start=Similarity())).save_archive(kept)
    e = replace(WHOLE, start=Similarity(archive=str(kept)))

    def refused(match, **changes):
        with pytest.raises(ConfigError, match=match) as error:
            run(replace(e, **changes))
        assert "\n" not in str(error.value)

    refused("has none. Check the path", start=Soup(archive=str(tmp_path / "none")))
    other = replace(WHOLE.train, model=Mlp(hidden=(4,)))
    refused("models of this study's shape.*tensors do not fit", train=other)
    part = (kept / "0001.safetensors").read_bytes()
    (kept / "0001.safetensors").write_bytes(part[:-40])
    refused("an earlier run has written. Got .*0001.safetensors")
    (kept / "0001.safetensors").unlink()
    refused("0001.safetensors")
    whole = (kept / "archive.json").read_text()
    (kept / "archive.json").write_text('{"number": 2, "sessions": [{')
    refused("archive.json")
    (kept / "archive.json").write_text(whole.replace('"format": 1', '"format": 9'))
    refused("format 9")
    (kept / "archive.json").unlink()
    refused("current-0002.safetensors, which belongs to an archive, without its archive.json")
    nan = {"weight": torch.full((10, 64), torch.nan), "bias": torch.zeros(10)}
    names = list(
        run(after(WHOLE, slice(0, 1), train=replace(WHOLE.train, model=Linear()))).layout.names
    )
    odd = tmp_path / "odd"
    odd.mkdir()
    save_file(
        dict(zip(sorted(names, reverse=True), nan.values(), strict=True)), odd / "x.safetensors"
    )
    refused("finite numbers", start=Soup(archive=str(odd)))
