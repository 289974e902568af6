"""A line of the journal: every key with its type and its meaning, and the functions that make a line.

Each class below holds the keys of one origin; `Line` is all of them. The table in docs/record.md is
generated from these classes by docs/journal_keys.py. Algorithms, probes and participation processes of
other packages may add keys of their own, which are not listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict, cast

from fedtide.core.types import Ids, Plan, Session, Work


class ClientMoves(TypedDict):
    """Clients that arrived or left: how many, and their ids if the text is not too long."""

    clients: int
    ids: NotRequired[str]  # "0-2 7": clients 0, 1, 2 and 7
    # Of those that left: the rounds in which they had come, and how many had come in each.
    since: NotRequired[list[list[int]]]


class HeldLabels(TypedDict):
    """How many examples of each label these clients hold."""

    ids: str
    labels: list[list[int]]  # [clients, classes]


class ClientScores(TypedDict, total=False):
    """Scores of single clients on their own test examples: see `fedtide.measure.own_tests`."""

    clients: int  # that were tested, and whose score is defined
    mean: float
    worst: float  # mean of the worst tenth
    spread: float  # standard deviation over clients
    histogram: dict[str, list[Any]]  # the edges of bins, and how many clients are in each
    ids: list[int]  # with `scores`: every client, if at most a hundred were tested
    scores: list[float]
    proxy: bool  # true: from the accuracy of labels, as the owners of test examples are unknown
    personal: dict[str, Any]  # the same after local fine-tuning, `gain` and the share that `gained`


class FairnessView(TypedDict):
    """Test accuracy by how often clients took part: see `fedtide.measure.fairness`."""

    groups: dict[str, dict[str, Any]]  # often, rarely, never, all: clients, accuracy, worst
    labels: dict[str, float]  # test accuracy of each label
    histogram: dict[str, list[int]]  # how many clients took part in how many rounds
    proxy: NotRequired[
        bool
    ]  # is a client's accuracy that of its labels, not of its own test examples?


class RoundKeys(TypedDict):
    """In every line."""

    t: Annotated[int, "The round, counted from 0."]
    session: Annotated[int, "The session, counted from 0."]
    round_in_session: Annotated[int, "The round within its session, counted from 0."]
    population: Annotated[int, "How many clients exist."]
    cohort: Annotated[int, "How many clients' uploads the server aggregated."]
    absent: Annotated[int, "How many clients were drawn but could not take part."]
    clients: Annotated[list[int], "The ids of the cohort."]
    stragglers: Annotated[
        list[int],
        "The ids of drawn clients that had data but could not afford the round or did not deliver.",
    ]
    accuracy: Annotated[
        float | None,
        "Test accuracy, on test examples of the labels that the session's clients hold; null if not tested, "
        "and in tasks whose answers are not right or wrong.",
    ]
    loss: Annotated[float | None, "Test loss on the same examples; null if not tested."]
    train_accuracy: Annotated[
        float | None,
        "Accuracy on the batches that clients trained on, the mean over the cohort; null without a cohort, "
        "and in tasks whose answers are not right or wrong.",
    ]
    train_loss: Annotated[float | None, "The loss on the same batches, without penalties."]
    lr: Annotated[float, "The learning rate of the round."]
    steps: Annotated[int, "Local steps of the whole cohort."]
    bytes_down: Annotated[
        int, "Bytes sent to the cohort; frozen buffers count in each client's first round only."
    ]
    bytes_up: Annotated[int, "Bytes sent by the cohort."]
    latency: Annotated[float, "Simulated seconds until the server goes on."]
    joules: Annotated[float, "Simulated energy of all clients."]


class EvaluationKeys(TypedDict, total=False):
    """Where the model is tested."""

    score: Annotated[
        float | None,
        "The first metric of the [task](tasks.md#scores), unless that is the accuracy; null where it is not "
        "defined, as the AUROC of a single label.",
    ]
    metrics: Annotated[dict[str, float | None], "Every metric that the task names."]
    untrained_score: Annotated[
        float | None, "Beside `score`: that of the untrained model on the same examples."
    ]
    train_credit: Annotated[
        float,
        "In tasks whose answers are not right or wrong: minus the training loss, the mean over examples and "
        "then over the cohort.",
    ]
    diverged: Annotated[
        int,
        "In how many evaluations in a row, this one included, the test loss was more than ten times the "
        "untrained model's; absent where it is not.",
    ]
    client_scores: Annotated[
        ClientScores,
        "With `evaluation.clients`: scores of clients on their own test examples (mean, worst tenth, spread, "
        "histogram), with `personalise` also after local fine-tuning; `proxy` if owners are unknown.",
    ]
    fairness: Annotated[
        FairnessView,
        "In the last line, with `evaluation.fairness = true`: test accuracy of clients that took part often, "
        "rarely and never.",
    ]


class PopulationKeys(TypedDict, total=False):
    """In the first round of a session: see [population](population.md)."""

    arrived: Annotated[
        ClientMoves,
        'How many clients arrived, and which: `"0-2 7"`, if they are few or their ids consecutive.',
    ]
    left: Annotated[
        ClientMoves,
        "How many clients left, and which, written likewise; `since` has the rounds in which they had come, "
        "and how many of them came in each.",
    ]
    returned: Annotated[int, "How many of the clients that arrived had been here before."]
    memories: Annotated[
        str,
        '`"anew"` where clients came or went and the states of server and clients had to begin anew.',
    ]
    holdings: Annotated[
        HeldLabels,
        "In the first round: how many examples of each label clients hold, all clients or a hundred of them.",
    ]


class StartKeys(TypedDict, total=False):
    """Where a session begins with a [start](starts.md)."""

    start: Annotated[int, "The number of the start, counted from 0."]
    start_weights: Annotated[list[float], "The weights of the earlier models that are mixed."]
    start_from: Annotated[list[int], "The starts whose last models these weights belong to."]
    start_distances: Annotated[
        list[float], "How far the gradient of each of those starts lies from this one's."
    ]
    start_tests: Annotated[
        list[list[float]],
        "With the start `soup`: the weights of these models in each mixture that clients tested.",
    ]
    start_losses: Annotated[list[float], "The loss of each mixture, the mean over the clients."]
    start_gain: Annotated[
        float, "By how much the loss of the mixture that was taken is below the current model's."
    ]
    start_reason: Annotated[str, "Why a start was due, in words."]
    start_costs: Annotated[
        dict[str, float],
        "What starts and triggers made clients do before this round: `steps`, `bytes_down`, `bytes_up`, "
        "`latency`, `joules`. The keys of these names in the line include it.",
    ]
    start_untested: Annotated[
        bool, "True: the model was replaced and no client had tested the new one."
    ]
    newcomers_p: Annotated[
        float,
        "With the trigger `newcomers`, in rounds with a test: the probability that newcomers' losses are so "
        "high by chance; 1 where there was nothing to compare.",
    ]
    signature_fall: Annotated[
        float,
        "With the trigger `signature`, in rounds in which clients computed gradients for it: by how much the "
        "cosine with the last start's gradient is below what two halves of the clients suggest.",
    ]
    test_exchanges: Annotated[
        int,
        "How often clients tested models for the start, before this round; bytes, `latency` and `joules` of "
        "this line include what that cost.",
    ]
    test_answers: Annotated[int, "How many answers of clients that gave."]
    stored_floats: Annotated[int, "How many numbers the archive of earlier models holds."]
    gradient_rounds: Annotated[
        int,
        "Rounds that computed gradients for the start, before this one; `steps`, bytes, `latency` and "
        "`joules` of this line include what they cost.",
    ]
    gradient_uploads: Annotated[int, "Uploads of those rounds."]


class ParticipationKeys(TypedDict, total=False):
    """What a participation process may say about a round: see [FAST](fast.md) for snapshots."""

    available: Annotated[int, "How many clients could have been drawn."]
    snapshot: Annotated[bool, "Whether this was a snapshot round, drawn uniformly."]
    q: Annotated[float, "The probability of a snapshot in this round."]
    asked: Annotated[int, "In a snapshot round: how many clients were asked."]
    hoped: Annotated[int, "In a snapshot round: how many replies were waited for."]
    wait: Annotated[float, "In a snapshot round: how much longer than usual the server waited."]


class NetworkKeys(TypedDict, total=False):
    """From a [network](network.md) that knows the phases down, compute and up."""

    seconds_by_phase: Annotated[
        dict[str, float],
        "Simulated seconds of each phase, the mean over clients that began the round.",
    ]
    joules_by_phase: Annotated[
        dict[str, float], "Simulated energy of each phase, the sum over clients."
    ]


class GuardKeys(TypedDict, total=False):
    """With faults, attacks, defences or privacy: see [guard](guard.md)."""

    crashed: Annotated[list[int], "The ids of clients that crashed."]
    slow: Annotated[list[int], "The ids of clients that were slowed down."]
    lost_uploads: Annotated[list[int], "The ids of clients whose upload was lost on its way."]
    refused: Annotated[dict[str, str], "Why the server refused an upload, by the client's id."]
    hostile: Annotated[int, "How many hostile clients sent an upload."]
    undefended: Annotated[int, "1 where the cohort was too small for the defence, else 0."]
    missing: Annotated[
        list[int], "With noise: the ids of clients that were drawn but did not answer."
    ]
    epsilon: Annotated[float, "In the last line, of real clients: the privacy loss of the run."]
    simulated_epsilon: Annotated[
        float,
        "The same of a simulation, where the noise can be computed from the seed and protects no one.",
    ]
    delta: Annotated[float, "The delta that the epsilon holds for."]


class ReplyKeys(TypedDict, total=False):
    """Where replies are missing: with faults, [real clients](deploy.md) or a [cluster](cluster.md)."""

    lost: Annotated[int, "How many clients of the cohort sent no upload that could be used."]
    late: Annotated[int, "From real clients: how many replies came after their deadline."]
    failed: Annotated[int, "From real clients: how many replies were errors."]
    forgot: Annotated[int, "From real clients: how many had lost what they remembered."]


class ProbeKeys(TypedDict, total=False):
    """From the probes that `evaluation.probes` names."""

    movement: Annotated[float, "How far the global model moved: the norm of its change."]
    rates: Annotated[
        list[list[float]], "The learning rates of each client of the cohort, one per local epoch."
    ]
    at_floor: Annotated[float, "The share of these rates at the algorithm's lower limit."]
    at_cap: Annotated[float, "The share of these rates at the algorithm's upper limit."]
    drift: Annotated[
        list[float], "The distance of each client's update from the mean update of the cohort."
    ]
    shift: Annotated[
        list[float],
        "How far each client's data moved since the round before: OSAFL's Phi, Definition 1.",
    ]


class AlgorithmKeys(TypedDict, total=False):
    """From the algorithm."""

    scores: Annotated[
        list[float], "[OSAFL](osafl.md): the weight of each cohort member's gradient at the server."
    ]


class TimeKeys(TypedDict, total=False):
    """In every line, once the round is over."""

    seconds: Annotated[
        dict[str, float],
        "Wall time by phase; writing the line and the checkpoint is counted in the next round.",
    ]


class Line(
    RoundKeys,
    EvaluationKeys,
    PopulationKeys,
    StartKeys,
    ParticipationKeys,
    NetworkKeys,
    GuardKeys,
    ReplyKeys,
    ProbeKeys,
    AlgorithmKeys,
    TimeKeys,
    total=False,
):
    """A line of the journal; only the keys of `RoundKeys` and `TimeKeys` are in every line."""


KEY_GROUPS = (  # the bases of `Line`, which a TypedDict does not keep
    RoundKeys,
    EvaluationKeys,
    PopulationKeys,
    StartKeys,
    ParticipationKeys,
    NetworkKeys,
    GuardKeys,
    ReplyKeys,
    ProbeKeys,
    AlgorithmKeys,
    TimeKeys,
)


class Progress(NamedTuple):
    """One more round of a run of a study."""

    label: str  # the run's settings in words
    seed: int
    line: Line
    cell: int = 0  # the number of the run's settings in the study's grid


def begun(t: int, session: Session, asked: Ids, plan: Plan, work: Work, lr: float) -> Line:
    """The line of a round that begins: who takes part and what it costs; nothing is trained or tested."""
    ids = asked[plan.able]
    line: Line = {
        "t": t,
        "session": session.number,
        "round_in_session": t - session.first,
        "population": len(session.clients),
        "cohort": len(ids),
        "absent": len(asked) - len(ids),
        "clients": ids.tolist(),
        "stragglers": asked[~plan.able & (work.steps > 0)].tolist(),
        "accuracy": None,
        "loss": None,
        "train_accuracy": None,
        "train_loss": None,
        "lr": lr,
        "steps": int(plan.steps[plan.able].sum()),
        "bytes_down": len(ids) * work.bytes_down,
        "bytes_up": len(ids) * work.bytes_up,
        "latency": plan.latency,
        "joules": float(plan.joules.sum()),
    }
    return added(line, _by_phase(plan))


def received(line: Line, ids: Ids, work: Work) -> Line:
    """The line when only these clients of the cohort have answered; the others count as lost."""
    lost = line["cohort"] - len(ids)
    if not lost:
        return line
    back = {"cohort": len(ids), "clients": ids.tolist(), "bytes_up": len(ids) * work.bytes_up}
    return added(line, {**back, "lost": lost})


def billed(line: Line, bill: Mapping[str, Any]) -> Line:
    """The line with the costs of a start, whose gradient rounds clients ran before this round."""
    return added(line, {name: line.get(name, 0) + cost for name, cost in bill.items()})


def added(line: Line, facts: Mapping[str, Any]) -> Line:
    """The line with further facts; facts of the same name are replaced."""
    return cast(Line, {**line, **facts})


def leaves(
    table: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of a line with the keys that lead to it: (("seconds", "train"), 0.2)."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _by_phase(plan: Plan) -> NetworkKeys:
    """What clients spent receiving, computing and sending, if the network knows."""
    if plan.seconds_by is None or plan.joules_by is None:
        return {}
    began = plan.seconds > 0
    return {
        "seconds_by_phase": {
            name: float(part[began].mean()) if began.any() else 0.0
            for name, part in plan.seconds_by._asdict().items()
        },
        "joules_by_phase": {
            name: float(part.sum()) for name, part in plan.joules_by._asdict().items()
        },
    }
