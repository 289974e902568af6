"""Study files with mistakes: valid ones, mutated at random."""

import json
import math
import string

from hypothesis import strategies as st

from fedtide import config
from fedtide.algorithms.base import Algorithm
from fedtide.data.partition import Partition
from fedtide.data.stores import Stores
from fedtide.engines.kinds import AutoSettings
from fedtide.guard.attacks import Attack
from fedtide.guard.defences import Defence
from fedtide.guard.faults import Faults
from fedtide.guard.privacy import Privacy
from fedtide.measure.evaluation import Evaluation
from fedtide.models.base import ModelSpec
from fedtide.network.plan import Network
from fedtide.population.process import Participation
from fedtide.population.sessions import Population
from fedtide.record.checkpoint import Checkpointing
from fedtide.run.kinds import KINDS
from fedtide.starts.base import Start
from fedtide.training.optimisers import Rule
from fedtide.training.schedules import Schedule
from fedtide.training.train import Train

SECTIONS = {
    ("population",): Population,
    ("participation",): Participation,
    ("network",): Network,
    ("algorithm",): Algorithm,
    ("start",): Start,
    ("data", "partition"): Partition,
    ("data", "stores"): Stores,
    ("attack",): Attack,
    ("defence",): Defence,
    ("train", "schedule"): Schedule,
    ("train", "model"): ModelSpec,
    ("train", "optimiser"): Rule,
}
PLAIN = {
    "train": Train,
    "evaluation": Evaluation,
    "engine": AutoSettings,
    "faults": Faults,
    "privacy": Privacy,
    "checkpoint": Checkpointing,
}
LARGE = {"resnet18", "resnet34", "vgg11"}  # models that take their time
NEEDED = {
    "uniform": {"clients": 2},
    "regularised": {"rate": 0.5},
    "pattern": {"clients": 3, "sessions": [[0, 1], [2]]},
    "trace": {"stays": [[0, 0, 2], [1, 1, 3]]},
}
TOP = (
    "seed",
    "question",
    "transition_rounds",
    "recovery",
    "compare",
    "case",
    "published",
    "track",
    "data",
)
ODD = [
    *(0, -1, 1, 2, 3, 7, 10**11, -(10**11), 2**63, 10**30, 10**400),
    *(0.0, -1.0, 0.3, 0.5, 1.0, 2.0, 1e-300, 1e300, 1e9, math.nan, math.inf, -math.inf),
    *(True, False, "", "x", "full", "../../etc/passwd", "a.py:B", "\u202e\x00", "cpu"),
    *([], [0], [-1, 2], [[]], ["a"], [0.5, 0.1], [[0, 0, 1]], {}, {"kind": "x"}),
]


@st.composite
def tables(draw):
    """A small study of random kinds, with a few settings changed to something odd."""
    table = {
        "population": {"kind": "fixed", "clients": 4, "rounds": 2},
        "train": {"steps": 1, "batch_size": 4},
    }
    for path in draw(st.lists(st.sampled_from(sorted(SECTIONS)), max_size=3, unique=True)):
        kinds = KINDS[SECTIONS[path]]
        kind = draw(st.sampled_from(sorted(kinds.keys() - LARGE)))
        value = {"kind": kind, **NEEDED.get(kind, {})}
        if path == ("population",):
            value |= {"rounds": 2} | ({"clients": 4, "present": 2} if kind == "poisson" else {})
        config.put(table, ".".join(path), value, "fuzz")
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        mutate(draw, table)
    return table


def mutate(draw, table):
    """One setting, known or not, becomes something odd, mostly of the right type."""
    path = draw(st.sampled_from([*SECTIONS, *SECTIONS, *((name,) for name in PLAIN), ()]))
    inner = table
    for part in path:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            return
    kind = PLAIN.get(path[0] if path else "")
    if path in SECTIONS:
        kinds = KINDS[SECTIONS[path]]
        name = inner.setdefault("kind", draw(st.sampled_from(sorted(kinds.keys() - LARGE))))
        kind = kinds.get(str(name))
    known = config.settings(kind) if kind else dict.fromkeys(TOP, "")
    name = draw(st.sampled_from([*known, *known, "kind", "nonsense"]))
    fitting = [value for value in ODD if type(value) is type(known.get(name))]
    inner[name] = draw(st.sampled_from(fitting * 4 + ODD))


@st.composite
def files(draw):
    """The text of such a study, at times with broken characters."""
    text = "".join(f"{key} = {toml(value)}\n" for key, value in draw(tables()).items())
    for _ in range(draw(st.sampled_from([0] * 8 + [1, 4]))):
        place = draw(st.integers(0, len(text) - 1))
        with_ = draw(st.text(st.sampled_from(string.printable + "é\x00"), max_size=3))
        text = text[:place] + with_ + text[place + draw(st.integers(0, 2)) :]
    return text


def toml(value):
    """A value as TOML writes it in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value)


def mutated(draw, content):
    """Bytes with a few of them changed, cut out or put in, most often near the beginning."""
    for _ in range(draw(st.integers(1, 4))):
        near = draw(st.sampled_from([32, 200, max(1, len(content))]))
        place = draw(st.integers(0, min(near, len(content))))
        new = draw(
            st.one_of(st.binary(max_size=8), st.sampled_from([b"\xff" * 8, b"-1", b"1e99", b","]))
        )
        gone = draw(st.sampled_from([0, len(new), 1, 50]))
        content = content[:place] + new + content[place + gone :]
    return content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content
