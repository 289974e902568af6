"""How often triggers raise a false alarm, and how often they notice that a group of other labels took over.

    python studies/starts/triggers.py

False alarms: clients come and go for 200 rounds, all drawn alike. Every start after the pilot is one. Changes
noticed: every 30 rounds all clients leave and clients with other labels arrive; is there a start within two
rounds? Twenty seeds each; digits.
"""

from itertools import product

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedtide import (
    Data,
    Dirichlet,
    Evaluation,
    Experiment,
    Iid,
    Mlp,
    Newcomers,
    Poisson,
    Signature,
    Similarity,
    Soup,
    Train,
    Turnover,
    run,
)

SEEDS = range(100, 2100, 100)
ROUNDS, OPENING, TIDE, SOON = 200, 15, 30, 2
STARTS = {  # with the number of starts that belong to the pilot
    "newcomers": (Soup(trigger=Newcomers()), 0),
    "signature": (Similarity(trigger=Signature()), 1),
    "turnover 0.5": (Soup(trigger=Turnover()), 0),
}
PARTITIONS = {"iid": Iid(), "Dirichlet 0.3": Dirichlet(alpha=0.3)}
MODELS = {
    "linear": Train(model="linear", lr=0.05, batch_size=32, steps=5),
    "MLP": Train(model=Mlp(hidden=(64,)), lr=0.1, batch_size=32, steps=5),
}


def starts(start, partition, train, seed, tide):
    """The numbers of the starts of a run by their rounds."""
    population = Poisson(clients=40, present=20, stay=30, opening=OPENING, rounds=ROUNDS, tide=tide)
    lines = run(
        Experiment(
            data=Data(name="digits", partition=partition),
            population=population,
            train=train,
            start=start,
            evaluation=Evaluation(every=50),
            seed=seed,
        )
    ).rounds
    return {line["t"]: line["start"] for line in lines if "start" in line}


def row(trigger, partition, model):
    """Runs with a false alarm, false alarms in all, and changes that were noticed."""
    start, pilots = STARTS[trigger]
    setting = (start, PARTITIONS[partition], MODELS[model])
    quiet = [starts(*setting, seed, tide=0) for seed in SEEDS]
    alarms = [sum(number > pilots for number in run.values()) for run in quiet]
    noticed = [
        any(t + wait in run for wait in range(SOON + 1))
        for run in (starts(*setting, seed, TIDE) for seed in SEEDS)
        for t in range(OPENING, ROUNDS, TIDE)
    ]
    return (
        f"{sum(map(bool, alarms))} of {len(SEEDS)}",
        f"{sum(alarms)}",
        f"{sum(noticed)} of {len(noticed)}",
    )


table = Table(
    "trigger", "data", "model", "runs with a false alarm", "false alarms", "changes noticed"
)
for names in track(list(product(STARTS, PARTITIONS, MODELS)), console=Console(stderr=True)):
    table.add_row(*names, *row(*names))
Console().print(table)
