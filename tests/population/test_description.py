"""What `fedtide data` says about a trace, by hand and by counting."""

import numpy as np
import pytest
from typer.testing import CliRunner

from fedtide.cli import app
from fedtide.population.arrivals import VisitTrace
from fedtide.population.description import described
from fedtide.population.recording import MOST
from fedtide.population.visits import Visits
from fedtide.show.trace import bars, presence

# Client 0 stays for 4 rounds, is away for 1 and returns for 3; client 1 overlaps with itself; 2 never leaves.
STAYS = ((0, 0, 4), (1, 0, 3), (1, 2, 6), (0, 5, 8), (2, 6, MOST))


def test_by_hand():
    seen = described(Visits.of(STAYS), MOST)
    assert (seen.clients, seen.visits, seen.returning, seen.lasting, seen.rounds) == (3, 4, 1, 1, 8)
    assert seen.present.tolist() == [2, 2, 2, 2, 1, 2, 2, 2]
    assert seen.stay == pytest.approx((4 + 6 + 3) / 3)
    assert seen.gap == 1
    # Round 4: one of two goes; 5: one comes; 6: one goes, one comes.
    assert seen.turnover == pytest.approx((1 / 2 + 1 / 2 + 2 / 3) / 7)


def test_random_visits_by_counting():
    numbers = np.random.default_rng(1)
    arrive = numbers.integers(50, size=200)
    stays = zip(
        numbers.integers(20, size=200), arrive, arrive + numbers.integers(1, 9, 200), strict=True
    )
    trace = VisitTrace(stays=tuple(tuple(map(int, row)) for row in stays), rounds=60)
    seen = described(trace.visits(0), MOST)
    counted = [len(trace.at(t).clients) for t in range(seen.rounds)]
    assert seen.present.tolist() == counted
    shares, clients = presence(trace.visits(0), seen.rounds)
    assert clients == 20
    np.testing.assert_allclose(shares.sum(0), counted, atol=1e-9)


def test_bars():
    assert bars(np.array([0, 1, 4, 8])) == " ▁▄█"


def test_the_command(tmp_path):
    (tmp_path / "visits.csv").write_text(
        "client,arrive,leave\nzoe,2026-03-02 08:00,2026-03-02 09:00\nadam,2026-03-02 08:20,\n"
        "mia,2026-03-02 08:21,2026-03-02 08:29\n"
    )
    command = ["data", str(tmp_path / "visits.csv"), "--round-minutes", "10"]
    done = CliRunner().invoke(app, [*command, "--picture", str(tmp_path / "visits.png")])
    assert done.exit_code == 0, done.output
    for words in (
        "2 (0 = zoe, 1 = adam)",
        "6 of 10 minutes, 2026-03-02 08:00 to 2026-03-02 09:00 (UTC)",
        "1 of the visits: shorter than a round",
        "round_minutes = 10 }",
    ):
        assert words in done.output
    assert (tmp_path / "visits.png").read_bytes().startswith(b"\x89PNG")
