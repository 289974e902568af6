"""What a run's journal says about starts, and what recovery costs, from runs and by hand."""

import json

import pytest

from fedtide import config
from fedtide.measure.results import Results
from fedtide.record.folder import StudyFolder
from fedtide.run.execute import run_study
from tests.cli.command import fedtide

TIDE = """
transition_rounds = 2

[data]
name = "digits"

[population]
kind = "alternating"
clients = 3
sessions = 4
rounds = 5

[network]
kind = "wireless"
channel = { kind = "traces", file = "trace.txt", uplink_share = 1 }
computing = { kind = "cycles", bits_per_example = 1e4, examples_per_step = 10 }
fleet = { cycles_per_bit = 20, cpu_ghz = 1, transmit_dbm = 20, receive_watts = 0.1, capacitance = 1e-28 }
uplink = "each"
downlink = "each"

[train]
model = "linear"
lr = 0.05
steps = 5

[compare]
start = ["previous", "soup", "cold"]
seed = [1, 2]
"""
# A linear model of digits has 650 parameters: 20,800 bits at 8 Mbit/s. A step is 2e6 cycles at 1 GHz.
SECONDS = 2 * 20_800 / 8e6 + 5 * 2e6 / 1e9
# Per client: 0.1 W to receive and to send, and 0.5 v f^2 joules for each cycle.
JOULES = 0.1 * 20_800 / 8e6 * 2 + 0.5 * 1e-28 * 1e18 * 5 * 2e6


@pytest.fixture(scope="module")
def tide(tmp_path_factory):
    place = tmp_path_factory.mktemp("tide")
    (place / "trace.txt").write_text("0 8\n1 8\n")  # 8 Mbit/s, for ever
    (place / "tide.toml").write_text(TIDE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return run_study(config.load("tide.toml"), place / "runs", jobs=1).folder


def test_recovery_is_priced_as_by_hand(tide):
    """Rounds cost the same, so T_rho in seconds and joules is a multiple of T_rho in rounds."""
    previous, soup, cold = Results.read(tide).rows
    for row in (previous, cold):
        for found in row.metrics.values():
            rounds = found["recovery_rounds"]
            assert found["recovery_seconds"] == pytest.approx([n * SECONDS for n in rounds])
            assert found["recovery_joules"] == pytest.approx([n * 3 * JOULES for n in rounds])
    for seed, found in soup.metrics.items():
        begins = [line for line in soup.runs[seed] if line.get("start", 0) > 0]
        tests = [line.get("start_costs", {"latency": 0.0})["latency"] for line in begins]
        assert max(tests) > 0
        for rounds, seconds, test in zip(
            found["recovery_rounds"], found["recovery_seconds"], tests, strict=True
        ):
            spent = min(rounds, 5) * SECONDS + test
            assert seconds == pytest.approx(spent * (rounds / 5 if rounds > 5 else 1))


def test_the_cost_of_starts_is_in_the_journal_once(tide):
    _, soup, _ = Results.read(tide).rows
    lines = soup.runs[1]
    told = [line["start_costs"] for line in lines if "start_costs" in line]
    found = soup.metrics[1]
    assert found["start_seconds"] == pytest.approx(sum(one["latency"] for one in told))
    assert found["latency"] == pytest.approx(len(lines) * SECONDS + found["start_seconds"])
    assert found["start_bytes"] == sum(one["bytes_up"] + one["bytes_down"] for one in told)


def test_starts_say_why_and_who_returned(tide):
    lines = Results.read(tide).rows[0].runs[1]
    reasons = {line["t"]: line["start_reason"] for line in lines if "start" in line}
    assert reasons == {
        0: "the first clients came",
        **dict.fromkeys((5, 10, 15), "100% of the clients came or went since the last start"),
    }
    assert [line["returned"] for line in lines if "arrived" in line] == [0, 0, 3, 3]


def test_clients_that_come_with_a_start_wait_as_long_as_the_run_recovers(tide):
    for row in Results.read(tide).rows:
        known = row.numbers
        assert known["waiting_rounds"].mean == pytest.approx(known["recovery_rounds"].mean)


def test_rho_and_reference_can_be_changed_afterwards(tide):
    def recovery(*options):
        text = fedtide("table", tide.path, "--format", "csv", *options, cwd=tide.path).stdout
        head, *rows = (line.split(",") for line in text.splitlines())
        return [float(row[head.index("recovery_rounds_mean")]) for row in rows]

    known = Results.read(tide)
    usual = [row.numbers["recovery_rounds"].mean for row in known.rows]
    assert recovery() == pytest.approx(usual)
    easier = recovery("--rho", "0.5")
    assert all(a <= b for a, b in zip(easier, usual, strict=True))
    assert sum(easier) < sum(usual)
    assert sum(recovery("--reference", "start=cold")) < sum(usual)


def test_a_study_says_what_counts_as_recovered(tide, tmp_path, monkeypatch):
    """The settings are kept in study.json."""
    monkeypatch.chdir(tide.path.parent.parent.parent)
    changes = ["recovery.rho=0.5", 'recovery.reference={ start = "soup" }']
    again = run_study(config.load("tide.toml", changes), tide.path.parent.parent, jobs=1)
    assert json.loads((again.folder.path / "study.json").read_text())["recovery"] == {
        "rho": 0.5,
        "reference": {"start": "soup"},
    }
    found = Results.read(StudyFolder(again.folder.path))
    assert (found.recovery.rho, list(found.references)) == (0.5, [1, 1, 1])
