"""Models of Hugging Face as they are, with LoRA through peft."""

import pytest
import torch
from torch import nn

import fedtide
from tests.tasks import worlds
from tests.worlds import settings_of

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
# peft asks transformers in a way that transformers is about to give up.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
N, TEST = 40, 12


def classifier():
    """A small BERT with LoRA on queries and values, and a trained classifier."""
    bert = transformers.BertConfig(
        vocab_size=worlds.WORDS,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **SMALL,
    )
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return peft.get_peft_model(transformers.BertForSequenceClassification(bert), lora)


def writer():
    """A small GPT-2."""
    gpt = transformers.GPT2Config(
        vocab_size=worlds.WORDS, n_positions=16, n_embd=16, n_layer=1, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.GPT2LMHeadModel(gpt)


def texts(seed, count):
    ids = worlds.tokens(seed, count, 8)
    mask = (torch.arange(8) < 3 + ids[:, :1] % 6).long()
    return {"input_ids": ids, "attention_mask": mask}, ids


def experiment(model, dataset, **settings):
    return fedtide.Experiment(
        data=fedtide.Data(name=dataset),
        population=fedtide.Fixed(clients=2, rounds=2),
        train=fedtide.Train(model=model, epochs=1, batch_size=10, lr=0.1),
        engine=settings_of("auto", workers=1, device="cpu"),
        **settings,
    )


def test_lora_on_a_frozen_encoder():
    """Bytes are those of the adapter; a plain loop of torch gives the same first client."""
    pairs = [(inputs, ids[:, 0] % 3) for inputs, ids in (texts(1, N), texts(2, TEST))]
    dataset = fedtide.from_tensors(*pairs)
    history = fedtide.run(experiment(classifier, dataset))
    size = 4 * sum(p.numel() for p in classifier().parameters() if p.requires_grad)
    assert [line["bytes_up"] for line in history.rounds] == [2 * size, 2 * size]
    assert history.rounds[1]["bytes_down"] == 2 * size
    assert "lora_A" in history.layout.names[0]
    assert "cannot be vectorised: BertModel" in history.engine
    with torch.no_grad():
        inputs, targets = dataset.test.between(0, TEST)
        loss = nn.CrossEntropyLoss()(history.module()(**inputs).logits, targets)
    assert history.rounds[-1]["loss"] == pytest.approx(float(loss), rel=1e-6)


def test_next_tokens_of_a_language_model():
    """Targets are the sequences themselves; the loss is the one that the model computes from labels."""
    pairs = [(inputs, ids) for inputs, ids in (texts(1, N), texts(2, TEST))]
    dataset = fedtide.from_tensors(*pairs)
    task = fedtide.Tokens(shift=True)
    history = fedtide.run(experiment(writer, dataset, task=task))
    inputs, ids = dataset.test.between(0, TEST)
    with torch.no_grad():
        found = history.module()(**inputs, labels=ids)
    assert history.rounds[-1]["loss"] == pytest.approx(float(found.loss), rel=1e-6)
    assert history.rounds[-1]["score"] == pytest.approx(float(found.loss.exp()), rel=1e-6)
