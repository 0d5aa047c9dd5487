"""Writes what causal language models of transformers keep in their caches.

    pip install torch transformers
    python shapes.py > shapes.jsonl                  # with the sizes of the classes
    python shapes.py --seed 7 > shapes-seed7.jsonl   # with others
    python shapes.py qwen3 zaya                      # some types

Each line has a model type, its configuration, the class that was run, and the shapes that
its cache had after 24 tokens, as runs [count, layer]. Models are made on the meta device,
so that they take no memory; all take some minutes. Types that cannot be run so are named on
standard error.
"""
import argparse
import itertools
import json
import random
import sys
import warnings

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

warnings.filterwarnings("ignore")


def shapes(value):
    """The shapes of the tensors in an attribute of a layer; None if it has none."""
    if torch.is_tensor(value):
        return list(value.shape)
    if isinstance(value, dict):
        found = {str(k): list(v.shape) for k, v in value.items() if torch.is_tensor(v)}
        return found or None
    return None


def describe(layer):
    found = {"kind": type(layer).__name__}
    for name, value in vars(layer).items():
        if (kept := shapes(value)) not in (None, []):
            found[name] = kept
        elif name == "sliding_window" and isinstance(value, int):
            found[name] = value
    return found


def layers_of(cache):
    """The layers of a cache; those of xLSTM are tuples of states."""
    if hasattr(cache, "rnn_state"):
        return [
            {"kind": type(cache).__name__, "recurrent_states": {str(i): list(t.shape) for i, t in enumerate(states)}}
            for states in cache.rnn_state.values()
        ]
    return [describe(layer) for layer in cache.layers]


def other_sizes(model_type, seed):
    """Sizes that the class does not have by itself, those of attention above all."""
    choose = random.Random(f"{seed} {model_type}")
    default = CONFIG_MAPPING[model_type]().to_dict()
    sizes = {}
    count = default.get("num_hidden_layers")
    if isinstance(count, int) and count >= 8 and not default.get("layers_block_type"):
        sizes["num_hidden_layers"] = count - 4 * choose.randint(0, 1)
    heads, kv = default.get("num_attention_heads"), default.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(kv, int) and 1 < kv < heads and heads % (kv // 2) == 0:
        sizes["num_key_value_heads"] = kv // 2
    if isinstance(default.get("sliding_window"), int):
        sizes["sliding_window"] = default["sliding_window"] + choose.choice([32, 128, 512])
    if isinstance(default.get("head_dim"), int) and choose.random() < 0.5:
        sizes["head_dim"] = 2 * default["head_dim"]
    if isinstance(default.get("max_position_embeddings"), int):
        sizes["max_position_embeddings"] = 2 * default["max_position_embeddings"]
    return sizes


def run(model_type, seed):
    config = CONFIG_MAPPING[model_type](**(other_sizes(model_type, seed) if seed else {}))
    with torch.device("meta"), torch.no_grad():
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.bfloat16).eval()
        out = model(input_ids=torch.zeros(1, 24, dtype=torch.long), use_cache=True)
    cache = getattr(out, "past_key_values", None) or getattr(out, "cache_params", None) or out.cache
    written = json.loads(config.to_json_string(use_diff=False))
    return {
        "model_type": model_type,
        "config": {k: v for k, v in written.items() if k not in ("id2label", "label2id")},
        "class": type(model).__name__,
        "layers": [[len(list(run)), layer] for layer, run in itertools.groupby(layers_of(cache))],
    }


arguments = argparse.ArgumentParser()
arguments.add_argument("--seed", type=int, default=0)
arguments.add_argument("types", nargs="*", default=sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
arguments = arguments.parse_args()
for name in arguments.types:
    try:
        print(json.dumps(run(name, arguments.seed)), flush=True)
    except Exception as problem:  # no cache, or code that depends on data
        print(f"{name}: {str(problem)[:100]!r}", file=sys.stderr)
