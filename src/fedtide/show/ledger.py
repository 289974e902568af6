"""The ledger of a paper in the terminal and in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedtide.measure.ledger import SEEDS, VERDICTS, Ledger, LedgerEntry, PublishedNumber
from fedtide.show.columns import NONE

COUNTS = ("numbers", *VERDICTS[:-1], "not run", f"{SEEDS} seeds")


def counts(entries: Sequence[LedgerEntry]) -> list[int]:
    """How many numbers there are, how many of them have each verdict, and how many have three seeds."""
    found = Counter(entry.verdict for entry in entries)
    repeated = sum(entry.ours is not None and entry.ours.seeds >= SEEDS for entry in entries)
    return [len(entries), *(found[verdict] for verdict in VERDICTS), repeated]


def coverage(ledgers: Sequence[Ledger]) -> Table:
    """Every table of these papers: how many numbers it has, and what ours say."""
    table = Table(title="Published numbers and ours", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("table")
    for name in COUNTS:
        table.add_column(name, justify="right")
    for ledger in ledgers:
        table.add_row(f"[bold]{ledger.paper}", *(f"[bold]{n}" for n in counts(ledger.entries)))
        for name, entries in ledger.tables.items():
            table.add_row(f"  {name}", *map(str, counts(entries)))
    every = [entry for ledger in ledgers for entry in ledger.entries]
    table.add_section()
    table.add_row("all", *map(str, counts(every)))
    return table


def lines(entries: Sequence[LedgerEntry]) -> Iterator[str]:
    """Every number of a table in a line."""
    for entry in entries:
        said = entry.verdict + (f": {entry.because}" if entry.because else "")
        yield f"{where(entry.printed)}: published {_published(entry)}, ours {_ours(entry)}; {said}"


def where(printed: PublishedNumber, leave_out: Sequence[str] = ()) -> str:
    """The place of a number: `MNIST, overlap 0.0, alpha 0.3, FedProx, transition 2, proposed`."""
    return ", ".join(
        str(value) if isinstance(value, str) else f"{key} {value}"
        for key, value in printed.place.items()
        if key not in leave_out
    )


def coverage_markdown(ledgers: Sequence[Ledger]) -> Iterator[str]:
    """The coverage of these papers, a row for each table."""
    yield f"| table | {' | '.join(COUNTS)} |\n|---|{'--:|' * len(COUNTS)}\n"
    for ledger in ledgers:
        for name, entries in ledger.tables.items():
            yield f"| {ledger.paper}, {name} | {' | '.join(map(str, counts(entries)))} |\n"
    every = [entry for ledger in ledgers for entry in ledger.entries]
    yield f"| **all** | {' | '.join(f'**{n}**' for n in counts(every))} |\n"


def numbers_markdown(entries: Sequence[LedgerEntry], rows: Sequence[str]) -> Iterator[str]:
    """A table of a paper with ours above the published numbers, for the rows of which we ran any.

    `rows` are the keys of a place that stand at the left, as in the paper.
    """
    heads = list(dict.fromkeys(_without(entry.printed, rows) for entry in entries))
    yield f"| {' | '.join(rows)} | | {' | '.join(heads)} |\n"
    yield f"|{'---|' * (len(rows) + 1)}{'--:|' * len(heads)}\n"
    for left, group in groupby(entries, key=lambda entry: [entry.printed.place[k] for k in rows]):
        cells = {_without(entry.printed, rows): entry for entry in group}
        if any(entry.ours for entry in cells.values()):
            ours = [_judged(cells[head]) if head in cells else "" for head in heads]
            theirs = [_published(cells[head]) if head in cells else "" for head in heads]
            yield f"| {' | '.join(map(str, left))} | ours | {' | '.join(ours)} |\n"
            yield f"|{' |' * len(rows)} published | {' | '.join(theirs)} |\n"


def _without(printed: PublishedNumber, keys: Sequence[str]) -> str:
    """The rest of a place: `transition 2, proposed`."""
    return where(printed, leave_out=keys)


def _judged(entry: LedgerEntry) -> str:
    """Ours, in bold where it agrees with the published number."""
    return f"**{_ours(entry)}**" if entry.verdict == "agrees" else _ours(entry)


def _ours(entry: LedgerEntry) -> str:
    return NONE if entry.ours is None else _with_spread(entry.ours.value, entry.ours.spread, entry)


def _published(entry: LedgerEntry) -> str:
    return _with_spread(entry.printed.value, entry.printed.spread, entry)


def _with_spread(value: float, spread: float | None, entry: LedgerEntry) -> str:
    """Two digits after the point; four of fractions."""
    digits = 4 if entry.printed.unit in ("fraction", "loss") else 2
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")
