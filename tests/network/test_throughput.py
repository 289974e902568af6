"""Channels as they were recorded."""

import zipfile

import numpy as np
import pytest

from fedtide.core.errors import ConfigError, DataError
from fedtide.network.channel import Moment, Send
from fedtide.network.traces import Traces
from fedtide.network.wireless import Wireless

TRACE = "0 8\n1 0\n2 4\n\n3 8\n"  # Mbps for a second each: 20 Mbit in 4 s


def written(tmp_path, text=TRACE, name="a.txt"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_bits_by_hand(tmp_path):
    """8 Mbit in the first second, none in the second, 4 in the third, 8 in the fourth, then again."""
    (trace,) = Traces(file=written(tmp_path)).recordings()
    assert trace.time.tolist() == [0, 1, 2, 3, 4]
    assert trace.seconds(0.0, 4e6) == pytest.approx(0.5)
    assert trace.seconds(0.0, 8e6) == pytest.approx(1.0)
    assert trace.seconds(0.0, 9e6) == pytest.approx(2.25)
    assert trace.seconds(0.5, 6e6) == pytest.approx(2.0)
    assert trace.seconds(1.5, 4e6) == pytest.approx(1.5)
    assert trace.seconds(0.0, 24e6) == pytest.approx(4.5)
    assert trace.seconds(7.0, 12e6) == pytest.approx(1.5)


def test_clients_follow_traces(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("4G/a", "0 10\n1 10\n")
        archive.writestr("5G/b", "0 100\n1 100\n")
    channel = Traces(file=str(tmp_path / "all.zip"), uplink_share=0.5)
    ids, power = np.arange(4), np.ones(4)
    down = channel.seconds(Send("down", 1e7, power, power, 0 * power), ids, Moment(0, 0, 0.0))
    assert down == pytest.approx([1.0, 0.1, 1.0, 0.1])
    up = channel.seconds(Send("up", 1e7, power, power, 0 * power), ids, Moment(0, 0, 0.0))
    assert up == pytest.approx([2.0, 0.2, 2.0, 0.2])
    assert len(Traces(file=str(tmp_path / "all.zip"), only="5G").recordings()) == 1


def test_a_folder_of_traces(tmp_path):
    written(tmp_path, name="one")
    written(tmp_path, name="two")
    assert len(Traces(file=str(tmp_path)).recordings()) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\nx 2\n", "line 2 must be two numbers"),
        ("0 1\n1 -2\n", "line 2 must be two numbers"),
        ("0 1 2\n", "line 1 must be two numbers"),
        ("1 1\n0 2\n", "line 2 must be no earlier"),
        ("0 0\n1 0\n", "a throughput above 0"),
        ("", "a throughput above 0"),
    ],
)
def test_damaged_traces(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        Traces(file=written(tmp_path, text)).check()


def test_missing_traces(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDTIDE_DATA", raising=False)
    with pytest.raises(DataError, match="Set FEDTIDE_DATA"):
        Traces().check()
    with pytest.raises(DataError, match="Check the path"):
        Traces(file=str(tmp_path / "nowhere")).check()
    with pytest.raises(DataError, match="Got none"):
        Traces(file=written(tmp_path), only="5G").check()


def test_traces_know_no_power(tmp_path):
    channel = Traces(file=written(tmp_path))
    with pytest.raises(ConfigError, match="must be a radio channel"):
        Wireless(channel=channel, allocation="exact", deadline_seconds=10.0)
