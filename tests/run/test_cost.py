"""What a round costs, without training: `fedtide cost` and the studies it is for."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedtide import Train, load
from fedtide.algorithms.fedagg import FedAgg
from fedtide.algorithms.parts.readings import EarlierTerms
from fedtide.cli import app
from fedtide.core.errors import ConfigError
from fedtide.data.blank import Blank
from fedtide.network.plan import IdealNetwork
from fedtide.population.sessions import Alternating, Fixed
from fedtide.run.cost import cost as cost_of
from fedtide.run.cost import draw
from fedtide.run.loop import run

STUDIES = Path(__file__).parents[2] / "studies" / "papers" / "dimc"
STUDY = """
data = "blank"
[population]
kind = "fixed"
clients = 12
rounds = 3
[network]
kind = "wireless"
bandwidth_mhz = 0.54
uplink = "each"
downlink = "free"
deadline_seconds = 20
allocation = "alternating"
channel = { kind = "uma", radius_m = 3000, sight = "mixed", shadow = "round", fading = "none" }
computing = { kind = "cycles", examples_per_step = 160 }
fleet = { cpu_ghz = [1.0, 1.8], transmit_dbm = [20, 30], budget_joules = [1.2, 2.5] }
[train]
steps = 5
[compare]
network.epsilon = [0.1, 0.9]
seed = [1, 2]
"""


def cost(*arguments):
    done = CliRunner().invoke(app, ["cost", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("name", "seconds", "joules"), [("svhn", 6.9, 80.0), ("tinyimagenet", 113.6, 1430.0)]
)
def test_table_7(name, seconds, joules):
    (cell,) = json.loads(cost(STUDIES / f"table7-{name}.toml", "--rounds", 30, "--json"))["cells"]
    assert cell["seconds"]["mean"] == pytest.approx(seconds, rel=0.15)
    assert cell["joules"]["mean"] == pytest.approx(joules, rel=0.15)
    assert cell["take_part"] == cell["asked"] == 100
    assert cell["joules"]["mean"] == pytest.approx(sum(cell["joules_by_phase"].values()))


def test_more_bandwidth_is_faster():
    cells = json.loads(cost(STUDIES / "bandwidth.toml", "--rounds", 3, "--json"))["cells"]
    seconds = [cell["seconds"]["mean"] for cell in cells]
    assert [cell["settings"]["network.bandwidth_mhz"] for cell in cells][::6] == [50.0, 200.0]
    assert seconds == sorted(seconds, reverse=True)


def test_stragglers_are_named(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    printed = cost(tmp_path / "s.toml", "--rounds", 20)
    assert "Straggling" in printed
    first, second = json.loads(cost(tmp_path / "s.toml", "--rounds", 20, "--json"))["cells"]
    assert first["stragglers"] == second["stragglers"] > 0  # epsilon decides p and f, not who can
    assert first["take_part"] + first["stragglers"] == 12
    shares = first["straggle_shares"]
    assert sum(shares) / 24 == pytest.approx(first["stragglers"] / 12)
    assert max(shares) <= 1


def test_shares_are_those_of_each_seed(tmp_path):
    """With another seed, client 7 is another device in another place."""
    (tmp_path / "s.toml").write_text(STUDY)
    e = load(tmp_path / "s.toml").cells[0].experiment
    one, other, both = (cost_of(e, seeds, 20) for seeds in ([1], [2], [1, 2]))
    assert both["straggle_shares"] == sorted(one["straggle_shares"] + other["straggle_shares"])
    assert len(one["straggle_shares"]) == 12
    halves = one["straggle_half"], other["straggle_half"]
    assert both["straggle_half"] == pytest.approx(sum(halves) / 2)
    assert one["straggle_half"] == sum(share >= 0.5 for share in one["straggle_shares"]) / 12
    assert both["straggle_share"] == one["straggle_share"]


def test_messages_that_grow_are_priced_as_in_the_run(tmp_path):
    """FedAgg sends its law from the second round of a session on, and asks for terms every other round."""
    (tmp_path / "s.toml").write_text(STUDY)
    e = load(tmp_path / "s.toml").cells[0].experiment
    e = replace(
        e,
        algorithm=FedAgg(cap=0.1, reading=EarlierTerms(every=2)),
        train=Train(epochs=2, batch_size=4),
        network=IdealNetwork(),
    )
    lines, drawn = run(e).rounds, list(draw(e, 3))
    for line, d in zip(lines, drawn, strict=True):
        assert line["bytes_down"] == d.work.bytes_down * line["cohort"] > 0
        assert line["bytes_up"] == d.work.bytes_up * line["cohort"]
    assert len({d.work.bytes_down for d in drawn}) == len({d.work.bytes_up for d in drawn}) == 2


def test_a_price_is_that_of_the_run(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    e = load(tmp_path / "s.toml").cells[0].experiment
    lines, found = run(e).rounds, cost_of(e, [e.seed], 3)
    assert found["seconds"]["mean"] == pytest.approx(sum(line["latency"] for line in lines) / 3)
    assert found["joules"]["mean"] == pytest.approx(sum(line["joules"] for line in lines) / 3)
    assert found["take_part"] == sum(line["cohort"] for line in lines) / 3


def test_an_ideal_network_costs_nothing(tmp_path):
    (tmp_path / "s.toml").write_text(
        "[train]\nsteps = 1\n[population]\nkind = 'fixed'\nclients = 3\n"
    )
    (cell,) = json.loads(cost(tmp_path / "s.toml", "--rounds", 2, "--json"))["cells"]
    assert cell["seconds"] == cell["joules"] == {"mean": 0.0, "std": 0.0}
    assert cell["seconds_by_phase"] == {"down": 0.0, "compute": 0.0, "up": 0.0}


def test_blank_data():
    blank = Blank(shape=(2, 3), labels=4, examples=6)
    dataset, holdings = blank.deal(Fixed(clients=5, rounds=1).groups, 1, 0)
    assert (dataset.shape, dataset.classes, holdings.clients) == ((2, 3), 4, 5)
    assert holdings.sizes(0, np.arange(5)).tolist() == [6] * 5
    halves = Alternating(clients=2, sessions=2, rounds=1)
    dataset, holdings = blank.deal(halves.groups, 2, 0)
    held = holdings.labels(dataset.train.targets.numpy(), 4)
    assert (held > 0).tolist() == [[True, True, False, False]] * 2 + [
        [False, False, True, True]
    ] * 2
    tokens, _ = Blank(shape=(5,), vocabulary=7).deal(Fixed(clients=1, rounds=1).groups, 1, 0)
    assert tokens.train.inputs.max() < 7
    with pytest.raises(ConfigError, match=r"data.examples must be at least 1"):
        Blank(examples=0)
