"""What a start costs: tests of soup beside gradient rounds of DIMC, on the wireless network of OSAFL.

    FEDTIDE_DATA=<folder> python studies/starts/costs.py

Ten of 120 clients are there at a time, twelve groups after each other. The table shows what the start of the
last group adds to its first round, when H models are in the archive: the difference to the start "previous".
"""

from rich.console import Console
from rich.table import Table

from fedtide import (
    Data,
    Diverse,
    Evaluation,
    Experiment,
    FashionCnn,
    Last,
    Linear,
    Pattern,
    Previous,
    Similarity,
    Soup,
    Train,
    Wireless,
    run,
)

GROUPS, SIZE = 12, 10
MODELS = {
    "linear, Fashion-MNIST": Train(model=Linear(), lr=0.05, batch_size=32, steps=5),
    "CNN of FAST, Fashion-MNIST": Train(model=FashionCnn(), lr=0.05, batch_size=32, steps=5),
}
STARTS = {f"soup, H = {h}": Soup(keep=Diverse(H=h)) for h in (3, 5, 10)} | {
    "similarity, V = 1": Similarity(keep=Last(H=10)),
    "similarity, V = 3": Similarity(V=3, keep=Last(H=10)),
}
COSTS = {"bytes_down": 1e6, "bytes_up": 1e6, "latency": 1, "joules": 1}  # and their units


def last_round(train, start):
    """The costs of the last group's first round, start included."""
    groups = tuple(tuple(range(n, n + SIZE)) for n in range(0, GROUPS * SIZE, SIZE))
    e = Experiment(
        data=Data(name="fashion-mnist"),
        population=Pattern(clients=GROUPS * SIZE, sessions=groups, rounds=1),
        network=Wireless(),
        train=train,
        start=start,
        evaluation=Evaluation(every=GROUPS),
        seed=1,
    )
    line = run(e).rounds[-1]
    return {name: line[name] / unit for name, unit in COSTS.items()}


table = Table("model", "start", "MB down", "MB up", "seconds", "joules")
for model, train in MODELS.items():
    plain = last_round(train, Previous())
    table.add_row(model, "the round itself", *(f"{cost:.3f}" for cost in plain.values()))
    for name, start in STARTS.items():
        costs = last_round(train, start)
        table.add_row("", name, *(f"{costs[cost] - plain[cost]:.3f}" for cost in COSTS))
Console().print(table)
