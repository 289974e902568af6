"""Wrong settings of every kind and section of a study file, and the sentence that names each mistake.

The table is wrong_settings.txt: a line of a study file and, indented, the whole message. A kind without
settings needs no row there.
"""

import tomllib
from functools import reduce
from pathlib import Path

import pytest

from fedtide import config
from fedtide.core.errors import ConfigError
from fedtide.run.experiment import sections
from fedtide.run.kinds import KINDS, ROOMS

# Where a study file has the kinds of each room.
PLACES = {
    "algorithms": "algorithm",
    "attacks": "attack",
    "channels": "network.channel",
    "computing": "network.computing",
    "data": "data",
    "defences": "defence",
    "engines": "engine",
    "losses": "task.loss",
    "models": "train.model",
    "networks": "network",
    "optimisers": "train.optimiser",
    "participation": "participation",
    "partitions": "data.partition",
    "populations": "population",
    "probes": "evaluation.probes",
    "readings": "algorithm.reading",
    "retention": "start.keep",
    "schedules": "train.schedule",
    "scores": "task.metrics",
    "server-rules": "algorithm.server",
    "starts": "start",
    "stores": "data.stores",
    "tasks": "task",
    "trackers": "track",
    "triggers": "start.trigger",
}
CLASSES = sections() | {PLACES[room]: ROOMS[room].base for room in PLACES.keys() & ROOMS.keys()}


def read_rows():
    """The table as rows of place, settings and message."""
    text = Path(__file__).with_name("wrong_settings.txt").read_text()
    lines = [line.strip() for line in text.splitlines() if line]
    for line, message in zip(lines[::2], lines[1::2], strict=True):
        place = line.partition(" = ")[0]
        yield place, reduce(dict.get, place.split("."), tomllib.loads(line)), message


ROWS = list(read_rows())


@pytest.mark.parametrize(("place", "settings", "message"), ROWS)
def test_the_mistake_is_named(place, settings, message):
    with pytest.raises(ConfigError) as caught:
        config.convert(CLASSES[place], settings, place)
    assert str(caught.value) == message


@pytest.mark.parametrize("room", ROOMS)
def test_every_kind_with_settings_has_a_row(room):
    assert room in PLACES, f"Say in PLACES where a study file has the kinds of {room}."
    rows = {settings.get("kind") for place, settings, _ in ROWS if place == PLACES[room]}
    for name, kind in ROOMS[room].built_in.items():
        assert name in rows or not config.settings(kind), (
            f"{name} of {room} has settings: add a wrong one and its message to wrong_settings.txt."
        )


@pytest.mark.parametrize(
    "section", [name for name, base in sections().items() if base not in KINDS]
)
def test_every_section_without_kinds_has_a_row(section):
    assert section in {place for place, _, _ in ROWS}, (
        f"[{section}] has settings: add a wrong one and its message to wrong_settings.txt."
    )
