"""Text datasets as token ids: AG News by words, Shakespeare by characters as in LEAF (2018).

AG News is usually tokenised by that of bert-base-uncased, which has to be downloaded. Deviation: tokens are
lower-case words and punctuation marks, numbered by how common they are in the training text. The vocabulary
has the size of BERT's, 30,522, so that models have the published number of parameters.

Shakespeare deviates from LEAF in three points: the edition is another one, stage directions in brackets are
left out, and so are characters outside LEAF's 80 (which LEAF maps to -1).
"""

import csv
import io
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import stream
from fedtide.data.files import DAMAGES, LIMIT, Parts, content, damaged, find, labelled
from fedtide.data.hub import Hub, columns

Texts = tuple[list[str], list[int]]  # texts and their labels

PAD, UNKNOWN = 0, 1
WORDS = 30_522  # the size of bert-base-uncased's vocabulary
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80  # characters from which a model predicts the next one
TRAIN = 0.9  # share of each client's windows for training; LEAF's --tf
_NUMBER = np.full(256, -1, np.int16)
_NUMBER[np.frombuffer(LETTERS.encode(), np.uint8)] = np.arange(len(LETTERS))

_SKIPPED = ("alls_well", "sonnets")  # LEAF leaves them out
_DIRECTION = re.compile(r"\[[^\[\]]*\]")
_HEADING = re.compile(r"(?:THE )?(?:ACT|SCENE|PROLOGUE|EPILOGUE|INDUCTION|END)\b", re.IGNORECASE)
_CUE = re.compile(r"((?:[1-9]\.? )?[A-Z][A-Za-z'&,. -]{0,38}?)([.:]?)\s*$")
_CUE_AND_SPEECH = re.compile(r"([A-Z][A-Z' ]+)\. +(?=\S)")


def ag_news(folder: Path, classes: int, *, length: int = 64, vocabulary: int = WORDS) -> Parts:
    """AG News from train.csv (or train_subset.csv) and test.csv, with or without a header line."""
    train = _rows(find(folder, "train.csv", "train_subset.csv"), classes)
    test = _rows(find(folder, "test.csv"), classes)
    return _tokens(train, test, classes, folder, length, vocabulary)


def ag_news_hub(
    splits: Mapping[str, Any],
    source: Hub,
    classes: int,
    *,
    length: int = 64,
    vocabulary: int = WORDS,
) -> Parts:
    """AG News from the hub, where labels begin at 0."""
    parts = []
    for split in (source.train, source.test):
        rows = columns(splits, split, source, source.inputs, source.label)
        parts.append((list(rows[source.inputs]), list(rows[source.label])))
    return _tokens(parts[0], parts[1], classes, source.id, length, vocabulary)


def _rows(path: Path, classes: int) -> Texts:
    """The texts (title and description) and labels (1 becomes 0) of a CSV file."""
    try:
        table = csv.reader(io.StringIO(content(path).decode("utf-8"), newline=""), strict=True)
        rows = [(table.line_num, row) for row in table if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, f"it is not a CSV file in UTF-8 ({error})") from error
    header = rows[0][1] if rows and not rows[0][1][0].isdigit() else []
    width = len(header) or 3
    words = slice(1, 2) if "text" in header else slice(1, 3)
    texts, labels = [], []
    for line, row in rows[bool(header) :]:
        if len(row) != width or row[0] not in map(str, range(1, classes + 1)):
            what = f"line {line} must be a label 1-{classes} and {width - 1} texts"
            raise damaged(path, f"{what}. Got {','.join(row)[:60]!r}", "Correct or remove it.")
        texts.append(" ".join(row[words]))
        labels.append(int(row[0]) - 1)
    return texts, labels


def _tokens(
    train: Texts, test: Texts, classes: int, source: object, length: int, vocabulary: int
) -> Parts:
    """Token ids [N, length], cut or padded with 0; the vocabulary comes from the training text."""
    require(length >= 1, "data.length", "at least 1", length)
    require(vocabulary >= 3, "data.vocabulary", "at least 3", vocabulary)
    cut = [[_WORD.findall(text.lower()) for text in part[0]] for part in (train, test)]
    counts = Counter(word for words in cut[0] for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - 2]
    number = {word: index for index, word in enumerate(ranked, start=UNKNOWN + 1)}
    parts = []
    for texts, (_, labels) in zip(cut, (train, test), strict=True):
        ids = np.full((len(texts), length), PAD, np.int32)
        for row, words in zip(ids, texts, strict=True):
            known = [number.get(word, UNKNOWN) for word in words[:length]]
            row[: len(known)] = known
        parts.append(labelled(ids, np.array(labels, np.int64), classes, source))
    return Parts(parts[0], parts[1], vocabulary=vocabulary)


class Slice(NamedTuple):
    """How the windows of one client are split in time."""

    client: int
    train: int  # the number of windows for training, the first ones
    skip: int  # the number of windows after them that overlap both parts and are not used
    total: int  # the windows from there up to this number are for testing


def shakespeare(
    folder: Path, classes: int, *, fraction: float = 0.2, stride: int = 1, seed: int = 0
) -> Parts:
    """Shakespeare's plays from a zip file; `keys` are the roles of the plays.

    A `fraction` of all windows is used: whole clients in random order, the last one cut (LEAF's --sf).
    `stride` is the distance from one window to the next, 1 in LEAF.
    """
    path = find(folder, "plays_gutenberg.zip")
    roles = [encoded(text) for play in _plays(path) for text in speeches(play).values()]
    slices = _slices([len(role) - WINDOW for role in roles], fraction, stride, seed)

    def windows(client: int, first: int, last: int) -> NDArray[np.int16]:
        every = np.lib.stride_tricks.sliding_window_view(roles[client], WINDOW + 1)[::stride]
        return every[first:last]

    train = [windows(part.client, 0, part.train) for part in slices]
    test = [windows(part.client, part.train + part.skip, part.total) for part in slices]
    return _next_letters(train, test, classes, path)


def shakespeare_hub(
    splits: Mapping[str, Any],
    source: Hub,
    classes: int,
    *,
    fraction: float = 0.2,
    stride: int = 1,
    seed: int = 0,
) -> Parts:
    """Shakespeare's plays from the hub, in LEAF's rows: 80 characters, the next one, and the role."""
    names = (source.inputs, source.label, "character_id")
    rows = columns(splits, source.train, source, *names).with_format("numpy")
    owners = np.asarray(rows["character_id"])
    _, first, numbers = np.unique(owners, return_index=True, return_inverse=True)
    order = np.argsort(first)  # roles in order of appearance
    indices = [np.flatnonzero(numbers == role) for role in order]
    slices = _slices([len(index) for index in indices], fraction, stride, seed)

    def windows(index: NDArray[np.int64]) -> NDArray[np.int16]:
        chosen = rows[index]
        texts = [x + y for x, y in zip(chosen[source.inputs], chosen[source.label], strict=True)]
        bad = [text for text in texts if len(text) != WINDOW + 1]
        if bad:
            raise damaged(source.id, f"a row must have {WINDOW} + 1 characters. Got {bad[0]!r}")
        ids = _NUMBER[np.frombuffer("".join(texts).encode("latin-1", "replace"), np.uint8)]
        return np.where(ids < 0, LETTERS.index(" "), ids).reshape(-1, WINDOW + 1).astype(np.int16)

    kept = [(indices[part.client][::stride], part) for part in slices]
    train = [windows(index[: part.train]) for index, part in kept]
    test = [windows(index[part.train + part.skip : part.total]) for index, part in kept]
    return _next_letters(train, test, classes, source.id)


def _next_letters(
    train: list[NDArray[np.int16]], test: list[NDArray[np.int16]], classes: int, source: object
) -> Parts:
    """Examples from each client's windows of 81 characters: 80 characters and the next one."""
    parts = []
    for part in (train, test):
        ids = np.concatenate(part)
        parts.append(labelled(ids[:, :WINDOW], ids[:, WINDOW], classes, source))
    keys = np.repeat(np.arange(len(train)), [len(windows) for windows in train])
    return Parts(parts[0], parts[1], keys=keys, vocabulary=len(LETTERS))


def _slices(lengths: Sequence[int], fraction: float, stride: int, seed: int) -> list[Slice]:
    """Choose clients and split their windows in time; `lengths` are numbers of windows at stride 1."""
    require(0 < fraction <= 1, "data.fraction", "in (0, 1]", fraction)
    require(stride >= 1, "data.stride", "at least 1", stride)
    counts = [max(0, ceil(length / stride)) for length in lengths]
    wanted = int(fraction * sum(counts))
    skip = ceil((WINDOW - 1) / stride)  # windows that share characters with both parts
    slices = []
    for client in stream(seed, "shakespeare").permutation(len(counts)):
        total = min(counts[client], wanted)
        wanted -= total
        train = int(TRAIN * total)
        if train > 0 and train + skip < total:
            slices.append(Slice(int(client), train, skip, total))
    enough = "large enough for one client to train and test"
    require(bool(slices), "data.fraction", enough, fraction)
    return sorted(slices)


def encoded(text: str) -> NDArray[np.int16]:
    """The ids of a text's characters in LEAF's alphabet; other characters are left out."""
    ids = _NUMBER[np.frombuffer(text.encode("latin-1", "ignore"), np.uint8)]
    return ids[ids >= 0]


def _plays(path: Path) -> Iterator[str]:
    """The texts of the plays, sorted by name; the sonnets and All's Well are left out, as in LEAF."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".txt")]
            if sum(entry.file_size for entry in entries) > LIMIT:
                raise damaged(path, f"it unpacks to more than {LIMIT:,} bytes")
            for entry in sorted(entries, key=lambda entry: entry.filename):
                if not Path(entry.filename).name.startswith(_SKIPPED):
                    yield archive.read(entry).decode("latin-1")
    except DAMAGES as error:
        raise damaged(path, f"it is not a readable zip file ({error})") from error


def speeches(play: str) -> dict[str, str]:
    """The words of each role of a play, as one line; roles with one or two speeches are left out.

    A speech is a paragraph that begins with a cue, its speaker's name. A paragraph without a cue continues
    the speech before it.
    """
    text = _DIRECTION.sub("", play.replace("\r", ""))
    paragraphs = [part.strip() for part in re.split(r"\n[ \t]*\n", text) if part.strip()]
    counts = Counter(role for part in paragraphs if (role := _cue(part.split("\n")[0])))
    said: defaultdict[str, list[str]] = defaultdict(list)
    role = ""
    for paragraph in paragraphs:
        line, _, rest = paragraph.partition("\n")
        inline = _CUE_AND_SPEECH.match(line)
        if inline and counts[inline[1]] > 2:
            role, paragraph = inline[1], paragraph[inline.end() :]
        elif (cue := _cue(line)) and (counts[cue] > 2 or rest or line.isupper()):
            role, paragraph = cue if counts[cue] > 2 else "", rest
        elif _HEADING.match(line):
            role = ""
        if role and paragraph:
            said[role].append(paragraph)
    return {role: _one_line(parts) for role, parts in said.items()}


def _cue(line: str) -> str:
    """The role that a line announces, in upper case, or "". Cues look like HAMLET. HAMLET Ham. 1 Clown."""
    found = _CUE.match(line)
    if found is None or _HEADING.match(line):
        return ""
    name, stop = found[1].strip(), found[2]
    short = bool(stop) and len(name.split()) <= 4
    return name.upper() if name.isupper() or short else ""


def _one_line(parts: Iterable[str]) -> str:
    return re.sub(r"\s+", " ", " ".join(parts)).strip()
