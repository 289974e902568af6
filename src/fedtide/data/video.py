"""Requests for videos: Pervej, Choi and Molisch, "Online-Score-Aided Federated Learning: Taming the Resource
Constraints in Wireless Networks", Appendix D-A and Algorithm 5.

A user requests one file after another. With probability epsilon_u it stays with its genre and requests one of
the K files most similar to the last one; otherwise it turns to another genre and requests a popular file
there. A client learns to predict the next request from the last one (Dataset-1, "features") or from the last
ten (Dataset-2, "history").

Not published: the parameters of the Zipf-Mandelbrot law, and the test set. The test set here consists of new
requests of the same users. Features are standardised by the moments of the catalogue and of the distributions
from which users are drawn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedtide.core.errors import require
from fedtide.core.rng import stream, uniforms
from fedtide.core.types import Dataset, Examples
from fedtide.data.datasets import place
from fedtide.data.files import damaged, npz
from fedtide.data.holdings import Fifo, Holdings, Pace, Pooled, Static
from fedtide.data.source import Groups, Source
from fedtide.data.stores import Arriving

FILES, GENRES, EACH = 100, 5, 20  # files, genres, files of a genre
TASTE = 0.3  # the parameter of the Dirichlet distribution of a user's genres
LOYALTY = (0.4, 0.9)  # the range of epsilon_u, the probability to stay with a genre
GENRE_COLUMNS = 70  # how often the genre's number is repeated in the features

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Catalogue(NamedTuple):
    """The files that users may request; file f belongs to genre f // 20."""

    images: Floats  # [files, 3, 32, 32] in [0, 1]
    likeness: Floats  # [files, 20]: cosine with every file of its genre (Eq. 81)

    @classmethod
    def of(cls, images: Floats) -> Catalogue:
        flat = images.reshape(GENRES, EACH, -1)
        flat = flat / np.linalg.norm(flat, axis=2, keepdims=True)
        return cls(images, (flat @ flat.transpose(0, 2, 1)).reshape(FILES, EACH))

    def neighbours(self, k: int) -> tuple[Labels, Floats]:
        """The k files most like each file and their cumulated probabilities (Eq. 82), [files, k] each."""
        own = np.arange(FILES)
        likeness = self.likeness.copy()
        likeness[own, own % EACH] = -np.inf
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :k]
        weight = np.exp(np.take_along_axis(likeness, nearest, axis=1))
        return nearest + (own // EACH * EACH)[:, None], _cumulated(weight)


class Users(NamedTuple):
    """The users that request files."""

    taste: Floats  # [users, genres]: p_u
    loyalty: Floats  # [users]: epsilon_u

    @classmethod
    def drawn(cls, count: int, seed: int) -> Users:
        each = [stream(seed, "video user", user) for user in range(count)]
        taste = np.array([rng.dirichlet(np.full(GENRES, TASTE)) for rng in each])
        return cls(taste, np.array([rng.uniform(*LOYALTY) for rng in each]))


@dataclass(frozen=True, kw_only=True)
class Video(Source):
    """The video task of OSAFL: predict the file that a user requests next.

    `form` is "features" (Dataset-1: the last file's picture and the user's taste; 3 x 32 x 33 numbers) or
    "history" (Dataset-2: the last `window` requests). `similar` is K; with 1, the next file is certain while
    the user keeps its genre. There is one user per client; with `users` set and one client, that client
    (the Genie) holds the examples of all users. The catalogue is FEDTIDE_DATA/cifar100_one_per_class if that
    folder exists ("auto"), or random pictures ("synthetic").
    """

    form: Literal["features", "history"] = "features"
    similar: int = 1  # K
    window: int = 10  # L
    users: int = 0  # 0: one per client
    test: int = 50  # test requests of each user
    zipf: float = 1.2  # gamma of Eq. 80
    plateau: float = 2.0  # q of Eq. 80
    catalogue: Literal["auto", "synthetic"] = "auto"
    stores: Arriving = field(default_factory=Arriving)

    def __post_init__(self) -> None:
        require(1 <= self.similar < EACH, "data.similar", "from 1 to 19", self.similar)
        require(self.window >= 1, "data.window", "at least 1", self.window)
        require(self.users >= 0, "data.users", "zero or positive", self.users)
        require(self.test >= 1, "data.test", "at least 1", self.test)
        require(self.zipf >= 0, "data.zipf", "zero or positive", self.zipf)
        require(self.plateau >= 0, "data.plateau", "zero or positive", self.plateau)

    @property
    def title(self) -> str:
        return "video"

    @property
    def is_here(self) -> bool:
        return True

    def deal(self, groups: Groups, rounds: int, seed: int) -> tuple[Dataset, Holdings]:
        users, place = self._users(groups), os.environ.get("FEDTIDE_DATA", "")
        dataset, holdings = _dealt(self, users, rounds, seed, place)
        alone = sum(group.clients for group in groups(FILES)) == 1
        return dataset, Pooled(holdings) if alone else holdings

    def made(self, users: int, rounds: int, seed: int) -> tuple[Dataset, Holdings]:
        """The requests of this many users as a dataset, and what each user stores of them."""
        shop, crowd = catalogue(self.catalogue), Users.drawn(users, seed)
        pace = self.stores.pace(users, seed)
        length = self._lengths(pace, rounds, seed)
        asked = self.requests(shop, crowd, int(length.max()), seed, "train")
        held_out = self.requests(shop, crowd, self.test, seed, "test")
        inputs = features(shop, crowd) if self.form == "features" else None
        train = self._examples(asked, length, inputs)
        test = self._examples(held_out, np.full(users, self.test), inputs)
        streams = Static(np.arange(len(train)), np.concatenate([[0], length.cumsum()]))
        vocabulary = 0 if inputs is not None else FILES
        return Dataset("video", train, test, FILES, vocabulary=vocabulary), Fifo(
            streams, pace, seed
        )

    def _users(self, groups: Groups) -> int:
        found = groups(FILES)
        clients = sum(group.clients for group in found)
        require(
            all(group.labels is None for group in found),
            "population",
            "one group of clients without labels of its own with data.kind = 'video'",
            "groups of clients with labels of their own",
            "Use population.kind = 'fixed'.",
        )
        users = self.users or clients
        require(
            clients in (users, 1),
            "population.clients",
            f"{users}, one for each user, or 1, which then holds the examples of all users",
            clients,
        )
        return users

    def _lengths(self, pace: Pace, rounds: int, seed: int) -> Labels:
        """The number of examples that each user's stream needs for this many rounds."""
        ids = np.arange(len(pace.first))
        arrived = [pace.arrivals(t, ids, seed) for t in range(1, rounds)]
        return pace.first + np.sum(arrived, axis=0, dtype=np.int64)

    def requests(
        self, shop: Catalogue, users: Users, count: int, seed: int, purpose: str
    ) -> Labels:
        """[users, requests]: Algorithm 5 for all users at once, with requests for `count` examples each."""
        count += self.window if self.form == "history" else 1
        crowd = len(users.loyalty)
        draws = uniforms(seed, "video", purpose, ids=np.arange(crowd), count=3 * count)
        rank = stream(seed, "video popularity").permuted(
            np.tile(np.arange(EACH), (GENRES, 1)), axis=1
        )
        popular = _cumulated(np.power(np.arange(1, EACH + 1) + self.plateau, -self.zipf)[None])
        nearest, chances = shop.neighbours(self.similar)

        def from_genre(genre: Labels, luck: Floats) -> Labels:  # Eq. 80
            return np.asarray(genre * EACH + rank[genre, _chosen(popular, luck)])

        asked = np.empty((crowd, count), dtype=np.int64)
        first = _chosen(_cumulated(users.taste), draws[:, 0])
        asked[:, 0] = from_genre(first, draws[:, 1])
        for n in range(1, count):
            mood, where, which = draws[:, 3 * n : 3 * n + 3].T
            last = asked[:, n - 1]
            like = nearest[last, _chosen(chances[last], which)]
            other = users.taste.copy()
            other[np.arange(crowd), last // EACH] = 0.0  # g' != g
            new = from_genre(_chosen(_cumulated(other + 1e-12), where), which)
            asked[:, n] = np.where(mood <= users.loyalty, like, new)
        return asked

    def _examples(self, asked: Labels, length: Labels, inputs: torch.Tensor | None) -> Examples:
        """Examples from sliding windows over each user's requests, one user after the other."""
        lead = self.window if self.form == "history" else 1
        user = np.repeat(np.arange(len(asked)), length)
        moment = np.arange(len(user)) - np.repeat(length.cumsum() - length, length)
        targets = torch.from_numpy(asked[user, moment + lead])
        if inputs is not None:
            return Examples(
                inputs, targets, rows=torch.from_numpy(user * FILES + asked[user, moment])
            )
        windows = asked[user[:, None], moment[:, None] + np.arange(lead)]
        return Examples(torch.from_numpy(windows.astype(np.int16)), targets)


@lru_cache(maxsize=2)
def _dealt(
    video: Video, users: int, rounds: int, seed: int, place: str
) -> tuple[Dataset, Holdings]:
    """Make the data once for all runs of a study; `place` is the value of FEDTIDE_DATA."""
    return video.made(users, rounds, seed)


def catalogue(which: str) -> Catalogue:
    """One picture per label of CIFAR-100, or 100 random ones, the same for every seed."""
    folder = place("cifar100_one_per_class") if which == "auto" else None
    if folder is not None:
        pixels, labels = npz(folder / "images.npz", "x", "y")
        if pixels.shape != (FILES, 32, 32, 3) or labels.shape != (FILES,):
            what = f"x must be {FILES} images of 32 x 32 x 3, y their labels"
            raise damaged(folder / "images.npz", f"{what}. Got {pixels.shape} and {labels.shape}")
        order = np.argsort(labels, kind="stable")
        return Catalogue.of(pixels[order].transpose(0, 3, 1, 2) / 255.0)
    coarse = stream(0, "video catalogue").random((FILES, 3, 4, 4))
    return Catalogue.of(coarse.repeat(8, axis=2).repeat(8, axis=3))


def features(shop: Catalogue, users: Users) -> torch.Tensor:
    """Dataset-1: the inputs for each user and each last file, [users x files, 3, 32, 33].

    The file's picture and, as a 33rd column, the user's taste (5 numbers), the similarity of the files of the
    genre (20), the genre (70 times) and epsilon_u: 3,168 numbers in all.
    """
    count, genre = len(users.loyalty), np.arange(FILES) // EACH
    spread = np.sqrt(
        1 / GENRES * (1 - 1 / GENRES) / (GENRES * TASTE + 1)
    )  # std of a Dirichlet share
    taste = (users.taste - 1 / GENRES) / spread
    loyal = (users.loyalty - np.mean(LOYALTY)) / ((LOYALTY[1] - LOYALTY[0]) / np.sqrt(12))
    likeness = (shop.likeness - shop.likeness.mean()) / shop.likeness.std()
    genre = (genre - genre.mean()) / genre.std()
    pixels = (shop.images - shop.images.mean(0)) / np.maximum(shop.images.std(0), 1e-6)
    whole = np.empty((count, FILES, 3, 32, 33), dtype=np.float32)
    whole[..., :32] = pixels
    column = np.empty((count, FILES, 96), dtype=np.float32)
    column[..., :5] = taste[:, None]
    column[..., 5:25] = likeness
    column[..., 25:95] = genre[:, None]
    column[..., 95] = loyal[:, None]
    whole[..., 32] = column.reshape(count, FILES, 3, 32)
    return torch.from_numpy(whole.reshape(count * FILES, 3, 32, 33))


def _cumulated(weights: Floats) -> Floats:
    """Cumulated probabilities along the last axis, from weights."""
    sums = weights.cumsum(-1)
    return np.asarray(sums / sums[..., -1:])


def _chosen(sums: Floats, luck: Floats) -> Labels:
    """The index that each draw in [0, 1) selects, given cumulated probabilities."""
    chosen: Labels = (sums[..., :-1] <= luck[:, None]).sum(-1)
    return chosen
