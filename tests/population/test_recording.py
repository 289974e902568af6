"""Recorded visits: rounds, times, names, snapshots and label sets, from CSV and Parquet."""

import gzip
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedtide import Data, Experiment, Scaffold, Train, run
from fedtide.core.errors import DataError, FedTideError
from fedtide.population import recording
from fedtide.population.arrivals import VisitTrace
from tests.worlds import timeless

STAYS = [(0, 0, 4), (1, 0, 6), (2, 2, 7), (0, 5, 8), (3, 6, 7)]
NAMES = ["zoe", "adam", "mia", "ben"]  # 0 and 1 arrive together: adam is numbered first
MONDAY = datetime(2026, 3, 2, 8, tzinfo=UTC)


@pytest.fixture(params=["pyarrow", "python"])
def reader(request, monkeypatch):
    """CSV files are read by pyarrow or, without it, by Python."""
    recording._recording.cache_clear()
    if request.param == "python":
        monkeypatch.setattr(recording, "find_spec", lambda name: None)
    return request.param


def dated(stays, minutes=15):
    """The same visits with names and dates."""
    rows = ["client,arrive,leave"]
    for client, *times in stays:
        dates = [MONDAY + timedelta(minutes=minutes * t) for t in times]
        rows.append(",".join([NAMES[client], *(date.isoformat(" ") for date in dates)]))
    return "\n".join(rows) + "\n"


def of(tmp_path, text, name="visits.csv", **settings):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return VisitTrace(file=str(path), **{"rounds": 9} | settings)


def clients(trace):
    return [trace.at(t).clients.tolist() for t in range(trace.length)]


def renamed(stays):
    order = {1: 0, 0: 1, 2: 2, 3: 3}
    return tuple((order[client], *times) for client, *times in stays)


@pytest.mark.parametrize("name", ["visits.csv", "visits.csv.gz"])
def test_dates_and_names_are_the_same_visits(reader, tmp_path, name):
    trace = of(tmp_path, dated(STAYS), name, round_minutes=15)
    assert clients(trace) == clients(VisitTrace(stays=renamed(STAYS), rounds=9))
    found = trace.recording()
    assert found.names.tolist() == ["adam", "zoe", "mia", "ben"]
    assert (found.is_dated, found.begin) == (True, MONDAY.timestamp())


def test_the_same_run_bit_for_bit(tmp_path):
    """Names and dates, in CSV and in Parquet, make the run that numbers and rounds make."""
    e = Experiment(
        data=Data(name="digits", partition="dirichlet"),
        population=VisitTrace(stays=renamed(STAYS), rounds=9),
        algorithm=Scaffold(),
        train=Train(steps=2, lr=0.1),
        start="soup",
    )
    plain = run(e)
    trace = of(tmp_path, dated(STAYS), round_minutes=15)
    table = pa.table(
        {
            "device": [NAMES[client] for client, _, _ in STAYS],
            "from": [MONDAY + timedelta(minutes=15 * t) for _, t, _ in STAYS],
            "to": [MONDAY + timedelta(minutes=15 * t) for _, _, t in STAYS],
        }
    )
    parquet.write_table(table, tmp_path / "visits.parquet")
    file = str(tmp_path / "visits.parquet")
    columns = ("device", "from", "to")
    for population in (trace, VisitTrace(file=file, columns=columns, round_minutes=15, rounds=9)):
        other = run(replace(e, population=population))
        assert timeless(other.rounds) == timeless(plain.rounds)
        assert other.model.x.numpy().tobytes() == plain.model.x.numpy().tobytes()


def test_numbers_stay_numbers(reader, tmp_path):
    trace = of(tmp_path, "client,arrive,leave\n5,0,4\n0,2,3\n")
    assert clients(trace)[2] == [0, 5]
    assert trace.groups(10)[0].clients == 6


def test_large_numbers_are_names(reader, tmp_path):
    trace = of(tmp_path, "client,arrive,leave\n90210,0,4\n17,2,3\n")
    assert clients(trace)[2] == [0, 1]
    assert trace.recording().names.tolist() == ["90210", "17"]


def test_seconds(reader, tmp_path):
    """Rounds of a minute from second 30 on; a client that leaves before the next one begins is dropped."""
    text = "client,arrive,leave\n0,30,150\n1,31,90\n1,95,151\n"
    trace = of(tmp_path, text, round_minutes=1, rounds=4)
    assert clients(trace) == [[0], [0], [1], []]
    assert sum(trace.recording().dropped.values()) == 1


def test_a_visit_without_an_end(reader, tmp_path):
    trace = of(tmp_path, "client,arrive,leave\n0,0,4\n1,3,\n", rounds=200)
    assert clients(trace)[199] == [1]


def test_snapshots(reader, tmp_path):
    """Snapshots at 0, 10 and 30 minutes, in rounds of 10: the second one holds for two rounds."""
    rows = [("a", 0), ("b", 0), ("a", 10), ("c", 10), ("b", 30)]
    text = "client,seen\n" + "".join(f"{name},{60 * minute}\n" for name, minute in rows)
    trace = of(tmp_path, text, columns=("client", "seen"), round_minutes=10, rounds=6)
    assert clients(trace) == [[0, 1], [0, 2], [0, 2], [1], [1], []]


def test_label_sets(reader, tmp_path):
    """Clients of a group have neighbouring numbers, so that they get the labels of their group."""
    text = "client,arrive,leave,group\nx,0,9,1\ny,0,9,0\nz,1,9,1\n"
    trace = of(tmp_path, text, labels=((0, 1), (2, 3)))
    assert [(g.clients, g.labels) for g in trace.groups(4)] == [(1, (0, 1)), (2, (2, 3))]
    assert trace.recording().names.tolist() == ["y", "x", "z"]


WRONG = {
    "": "it must be a CSV or Parquet file|its columns must include client, arrive, leave",
    "client,arrive\n1,2\n": "its columns must include client, arrive, leave. Got client, arrive",
    "client,arrive,leave\n": "it must have at least one visit",
    "client,arrive,leave\n0,0,3\n1,x,3\n": "line 3: arrive must be a number.* Got 'x'",
    "client,arrive,leave\n0,0,3\n\n1,4,3\n": "line 4: leave must be after arrive. Got '?3'?",
    "client,arrive,leave\n0,0.5,3\n": "line 2: arrive must be a whole round",
    "client,arrive,leave\n0,-inf,3\n": "line 2: arrive must be a number or a date",
    "client,client,arrive,leave\n0,0,0,3\n": "it must have one column 'client'. Got 2",
    "client,arrive,leave\n0,0,\n0,5,2026-01-01\n": "line 3: leave must be a number",
    "client,arrive,leave\n0,-1,3\n": "line 2: arrive must be a whole round",
    "client,arrive,leave\n0,0,3\n,1,3\n": "line 3: client must be a name or a number. Got nothing",
    "client,arrive,leave\n0,2026-01-01,2026-01-02\n": "population.round_minutes must be the length",
    "client,arrive,leave\n0,0,3\n1,2\n": "line 3: it must have 3 fields. Got 2",
    "client,arrive,leave\n0,03.02.2026,3\n": r"line 2: arrive must be a date such as \S+ \S+\. Got '03",
}


def test_visits_that_meet_begin_no_session(reader, tmp_path):
    trace = VisitTrace(stays=((0, 0, 4), (0, 4, 8), (1, 0, 6), (1, 3, 8)), rounds=8)
    assert [trace.at(t).number for t in range(8)] == [0] * 8
    rows = "".join(f"{client},{t}\n" for t in (0, 1, 2, 3) for client in ("a", "b")[: 2 - t // 3])
    trace = of(tmp_path, "device,seen\n" + rows, columns=("device", "seen"), rounds=4)
    assert [trace.at(t).number for t in range(4)] == [0, 0, 0, 1]


def test_numbers_in_gaps_are_their_own_names(reader, tmp_path):
    found = of(tmp_path, "client,arrive,leave\n1,0,3\n11,1,4\n").recording()
    assert found.names.tolist() == [str(n) for n in range(12)]


def test_names_are_the_same_with_spaces_around_them(reader, tmp_path):
    trace = of(tmp_path, "client,arrive,leave\nanna,0,3\n anna ,4,6\nbert,0,2\n")
    assert trace.recording().names.tolist() == ["anna", "bert"]
    assert trace.recording().visits.client.tolist() == [0, 0, 1]


def test_clients_without_a_visit_that_counts_get_no_number(reader, tmp_path):
    """Bert's only visit lies between the beginnings of two rounds."""
    text = "client,arrive,leave\nanna,0,600\nbert,70,100\nclara,60,600\n"
    found = of(tmp_path, text, round_minutes=1).recording()
    assert found.names.tolist() == ["anna", "clara"]
    assert found.sizes == (2,)


def test_a_wrong_date_does_not_make_a_trace_of_decades(reader, tmp_path):
    rows = "a,2026-03-02 08:00,2026-03-02 09:00\nb,1970-03-02 08:00,1970-03-02 09:00\n"
    with pytest.raises(DataError, match="line 2: arrive must be within 10,000,000 rounds"):
        of(tmp_path, "client,arrive,leave\n" + rows, round_minutes=1)


def test_times_at_the_beginning_of_a_round_belong_to_it(reader, tmp_path):
    """Rounds of 1.8 seconds; 60 * 0.03 is a little less."""
    rows = "".join(f"c{n},{n * 1.8},180\n" for n in range(5))
    found = of(tmp_path, "client,arrive,leave\n" + rows, round_minutes=0.03).recording()
    assert found.visits.arrive.tolist() == [0, 1, 2, 3, 4]


def test_dates_with_nanoseconds(reader, tmp_path):
    rows = "a,2026-03-02 08:00:00.123456789,2026-03-02 09:00\n"
    trace = of(tmp_path, "client,arrive,leave\n" + rows, round_minutes=15)
    assert trace.recording().visits.leave.tolist() == [4]


@pytest.mark.parametrize("text", WRONG)
def test_wrong_files(reader, tmp_path, text):
    with pytest.raises(DataError, match=WRONG[text]):
        of(tmp_path, text)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="the path, as seen from where fedtide runs"):
        VisitTrace(file=str(tmp_path / "none.csv"))


def test_without_pyarrow_parquet_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "find_spec", lambda name: None)
    monkeypatch.setattr("fedtide.core.errors.find_spec", lambda name: None)
    (tmp_path / "v.parquet").write_bytes(b"x")
    with pytest.raises(FedTideError, match=r'pip install "fedtide\[parquet\]"'):
        VisitTrace(file=str(tmp_path / "v.parquet"))


def refusal(path):
    """What is said about a file; nothing if it can be read."""
    try:
        VisitTrace(file=str(path), round_minutes=15.0).visits(0)
    except FedTideError as error:
        return str(error)
    return ""


def test_damaged_files_are_errors_in_one_sentence(tmp_path):
    """500 files with bytes changed, removed or added: read, or refused by one line without a traceback."""
    draw = random.Random(1)
    table = pa.table({"client": ["a", "b"], "arrive": [0, 1], "leave": [3, 4]})
    parquet.write_table(table, tmp_path / "whole.parquet")
    wholes = {
        "csv": dated(STAYS).encode(),
        "csv.gz": gzip.compress(dated(STAYS).encode(), mtime=0),
        "parquet": (tmp_path / "whole.parquet").read_bytes(),
    }
    refused = 0
    for number in range(500):
        kind, content = draw.choice(list(wholes.items()))
        bad = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(bad))
            bad[at : at + draw.choice([0, 1, 5])] = draw.randbytes(draw.choice([0, 1, 3]))
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(bad)
        said = refusal(path)
        assert "\n" not in said
        refused += said != ""
        path.unlink()
    assert refused > 250
    assert np.all(np.array(STAYS) >= 0)
