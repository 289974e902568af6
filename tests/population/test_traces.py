"""Traces: what is read, what is refused, and who is there in which round."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtide.core.errors import ConfigError, DataError
from fedtide.population.traces import PHONES, AvailabilityTrace, Phones
from tests.population.crowds import cohorts, crowd, session


def written(folder, text, name="trace.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def there(process, rounds, clients, seed=0):
    return cohorts(process, rounds, session(clients), seed)


def test_stretches(tmp_path):
    """Rounds of one minute from the earliest time, 100 s: 0 is there at 100-220, 1 at 160-190 and 250-340.

    Half of a round is enough: 160-190 is half of round 1, 250-340 half of round 2 and all of 3. The end of
    the file is 340 s, that is four rounds; then it begins again.
    """
    file = written(tmp_path, "client,start,end\n1,160,190\n0,100,220\n1,250,340\n")
    drawn = there(AvailabilityTrace(file=file, round_minutes=1), 6, 2)
    assert drawn == [[0], [0, 1], [1], [1], [0], [0, 1]]


def test_a_gap_is_an_absence_and_overlaps_count_once(tmp_path):
    """10 + 10 seconds twice over are not half a minute; 20 + 20 that overlap by 10 are."""
    text = "client,start,end\n0,0,60\n0,60,70\n0,60,70\n0,65,75\n0,120,140\n0,130,150\n0,180,240\n"
    drawn = there(AvailabilityTrace(file=written(tmp_path, text), round_minutes=1), 4, 1)
    assert drawn == [[0], [], [0], [0]]


def test_minutes(tmp_path):
    """Columns in any order; minutes that are not noted are absences."""
    text = "minute,available,client\n10,1,0\n11,0,0\n11,1,1\n13,1,0\n13,0,1\n"
    drawn = there(AvailabilityTrace(file=written(tmp_path, text), round_minutes=1), 4, 2)
    assert drawn == [[0], [1], [], [0]]


def test_a_client_without_a_line_is_never_there(tmp_path):
    file = written(tmp_path, "client,start,end\n2,0,60\n")
    assert there(AvailabilityTrace(file=file, round_minutes=1), 2, 5) == [[2], [2]]


def test_copies_for_a_larger_population(tmp_path):
    """Client u repeats trace u mod 2; the first two are the recording, copies are shifted in time."""
    file = written(tmp_path, "client,start,end\n0,0,600\n1,600,6000\n")
    drawn = there(AvailabilityTrace(file=file, round_minutes=1, replicate=True), 100, 200)
    present = np.zeros((100, 200), dtype=bool)
    for t, ids in enumerate(drawn):
        present[t, ids] = True
    assert (present[:, ::2].sum(0) == 10).all()
    assert (present[:, 1::2].sum(0) == 90).all()
    assert present[:10, 0].all()
    starts = {int(np.argmax(present[:, u] & ~np.roll(present[:, u], 1))) for u in range(2, 200, 2)}
    assert len(starts) > 50
    again = there(AvailabilityTrace(file=file, round_minutes=1, replicate=True), 3, 200)
    other = there(AvailabilityTrace(file=file, round_minutes=1, replicate=True), 3, 200, seed=1)
    assert again == drawn[:3] != other


def test_fewer_than_the_cohort_asks_for(tmp_path):
    """All available clients take part; a round without available clients has an empty cohort."""
    file = written(tmp_path, "client,start,end\n0,0,60\n1,0,60\n2,120,180\n")
    drawn = there(AvailabilityTrace(file=file, round_minutes=1, clients=2), 3, 3)
    assert drawn == [[0, 1], [], [2]]


def test_a_changed_file_is_read_again(tmp_path):
    process = AvailabilityTrace(
        file=written(tmp_path, "client,start,end\n0,0,60\n"), round_minutes=1
    )
    assert there(process, 1, 2) == [[0]]
    written(tmp_path, "client,start,end\n1,0,60\n0,60,61\n")
    assert there(process, 1, 2) == [[1]]


stretch = st.tuples(st.integers(0, 5), st.floats(-1e6, 1e6), st.floats(1, 1e5))


@given(
    rows=st.lists(stretch, min_size=1, max_size=20),
    minutes=st.floats(0.5, 1e4),
    asked=st.integers(0, 8),
    replicate=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_trace_gives_cohorts(tmp_path_factory, rows, minutes, asked, replicate):
    """Gaps and overlaps of all kinds: distinct clients in order, never more than asked for."""
    lines = [f"{client},{begin!r},{begin + length!r}" for client, begin, length in rows]
    file = written(tmp_path_factory.mktemp("trace"), "client,start,end\n" + "\n".join(lines))
    process = AvailabilityTrace(
        file=file, round_minutes=minutes, clients=asked, replicate=replicate
    )
    for ids in there(process, 5, 9):
        assert ids == sorted(set(ids))
        assert len(ids) <= (asked or 9)


BAD = [
    ("client,start,end\n0,60,0\n", "line 2: end must lie after start. Got '60, 0'."),
    ("client,start,end\n0,5,5\n", "line 2: end must lie after start. Got '5, 5'."),
    ("client,start,end\n0,0,1\nx,0,1\n", "3: client must be the number of a client, 0 or more. Got 'x'."),
    ("client,start,end\n-1,0,1\n", "line 2: client must be the number of a client, 0 or more. Got '-1'."),
    ("client,start,end\n0.5,0,1\n", "line 2: client must be the number of a client, 0 or more. Got '0.5'."),
    ("client,start,end\n0,nan,1\n", "line 2: start must be a finite number. Got 'nan'."),
    ("client,start,end\n0,0,inf\n", "line 2: end must be a finite number. Got 'inf'."),
    ("client,start,end\n0,0\n", "line 2: it must have 3 fields."),
    ("client,start,end\n0,0,1,2\n", "line 2: it must have 3 fields."),
    ("client,start,end\n", "it must have lines after its header. Got none."),
    ("", "its header must have the columns client,end,start or available,client,minute. Got an empty file."),
    ("a,b\n1,2\n", "its header must have the columns client,end,start or available,client,minute. Got a,b."),
    ("client,minute,available\n0,0,2\n", "line 2: available must be 0 or 1. Got '2'."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_trace_names_its_line(tmp_path, text, message):
    process = AvailabilityTrace(file=written(tmp_path, text))
    with pytest.raises(DataError) as caught:
        process.check(session(3))
    assert message in str(caught.value)
    assert "trace.csv" in str(caught.value)


def test_unknown_clients(tmp_path):
    file = written(tmp_path, "client,start,end\n0,0,60\n7,0,60\n")
    with pytest.raises(DataError) as caught:
        AvailabilityTrace(file=file).start(crowd(5), 0)
    assert "its clients must be among the 5 of the population, 0 to 4. Got client 7." in str(
        caught.value
    )


def test_damaged_files(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"client,start,end\n0,0,60\n")[:-9])
    with pytest.raises(DataError, match="it must be a CSV file in UTF-8"):
        AvailabilityTrace(file=str(path)).check(session(1))
    (tmp_path / "latin.csv").write_bytes(b"client,start,end\n\xff,0,1\n")
    with pytest.raises(DataError, match="it must be a CSV file in UTF-8"):
        AvailabilityTrace(file=str(tmp_path / "latin.csv")).check(session(1))
    with pytest.raises(DataError, match="must be a trace that can be read"):
        AvailabilityTrace(file=str(tmp_path / "missing.csv")).check(session(1))
    with pytest.raises(ConfigError, match=r"participation.file must be a CSV file of a trace"):
        AvailabilityTrace().check(session(1))


def test_rounds_too_short_for_memory(tmp_path):
    file = written(tmp_path, "client,start,end\n0,0,1e9\n")
    with pytest.raises(ConfigError, match="fewer than 100,000,000 cells"):
        AvailabilityTrace(file=file, round_minutes=1e-5).check(session(1))


def phones(folder, *rows):
    """A file like ExtraSensory's: user, seconds since midnight, plugged, battery, wifi."""
    head = "user,timestamp,app,plugged,battery,wifi,on_phone,battery_level"
    lines = [
        f"{u},{86400 * 10 + time},NA,{plug},{battery},{wifi},False,0.5"
        for u, time, plug, battery, wifi in rows
    ]
    return written(folder, "\n".join([head, *lines]) + "\n", "phones.csv")


WIFI, NONE = "reachable_via_wifi", "not_reachable"


def test_phones_are_there_while_charging_and_on_wifi(tmp_path):
    """Rounds of one minute from midnight."""
    states = [
        (0, 0, "NA", "charging", WIFI),
        (0, 60, "NA", "discharging", WIFI),
        (0, 120, "NA", "full", WIFI),
        (0, 180, "NA", "charging", NONE),
        (0, 240, "usb", "NA", WIFI),
        (0, 300, "NA", "unplugged", WIFI),
        (0, 360, "ac", "charging", WIFI),  # believed for five minutes
        (0, 36000, "NA", "NA", "NA"),
    ]
    drawn = there(Phones(file=phones(tmp_path, *states), round_minutes=1), 1440 + 2, 1)
    present = [t for t, ids in enumerate(drawn) if ids]
    assert present == [0, 2, 4, 6, 7, 8, 9, 10, 1440]  # the day repeats


def test_phones_keep_the_time_of_day_and_their_own_length(tmp_path):
    states = [
        (0, 3600, "ac", "full", WIFI),
        (1, 86400 + 7200, "ac", "full", WIFI),
        (1, 2 * 86400 + 10, "NA", "unplugged", WIFI),
    ]
    process, firsts = Phones(file=phones(tmp_path, *states), round_minutes=5), set()
    for seed in range(8):
        drawn = there(process, 288 * 4, 2, seed)
        assert [t for t, ids in enumerate(drawn) if 0 in ids] == [
            12 + 288 * day for day in range(4)
        ]
        first, second = (t for t, ids in enumerate(drawn) if 1 in ids)
        assert second == first + 288 * 2  # two whole days
        firsts.add(first)
    assert firsts == {24, 24 + 288}  # each of them may be the first


def test_phones_are_not_all_absent_at_first(tmp_path):
    """Twenty phones that charge all day, from noon of the day on which they are enrolled."""
    noted = range(12 * 60, 4 * 24 * 60, 5)
    states = [(u, 60 * minute, "ac", "full", WIFI) for u in range(20) for minute in noted]
    process = Phones(file=phones(tmp_path, *states))
    for seed in range(3):
        drawn = there(process, 72, 20, seed)
        assert min(map(len, drawn)) >= 10  # of 20, on average 15: one day in four is half recorded


def test_copies_of_phones(tmp_path):
    states = [(0, 60 * m, "ac", "full", WIFI) for m in range(300)] + [
        (1, 60 * m, "NA", "unplugged", WIFI) for m in range(10)
    ]
    process = Phones(file=phones(tmp_path, *states), round_minutes=10, clients=5)
    drawn = there(process, 144, 40)
    assert max(map(len, drawn)) == 5
    assert {client % 2 for ids in drawn for client in ids} == {0}  # phone 1 never charges
    assert len({client for ids in drawn for client in ids}) > 10


def test_phones_need_their_file(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDTIDE_DATA", raising=False)
    Phones().check(session(5))  # a study file can be read without its data
    with pytest.raises(DataError, match="Set FEDTIDE_DATA to a folder that holds device_traces"):
        Phones().start(crowd(5), 0)
    monkeypatch.setenv("FEDTIDE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="must be a trace that can be read"):
        Phones().start(crowd(5), 0)
    (tmp_path / "device_traces").mkdir()
    text = Path(phones(tmp_path, (0, 0, "ac", "full", WIFI))).read_text(encoding="utf-8")
    with gzip.open(tmp_path / PHONES, "wt") as file:
        file.write(text)
    assert there(Phones(round_minutes=5), 1, 1) == [[0]]
