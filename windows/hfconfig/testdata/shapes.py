"""Writes shapes.jsonl: what causal language models of transformers keep in their caches.

    pip install torch transformers
    python shapes.py > shapes.jsonl

Each line has a model type, its default configuration, the class that was run, and the
shapes that its cache had after 24 tokens, as runs [count, layer]. Models are made on the
meta device, so that they take no memory. Types that cannot be run so are left out.
"""
import itertools
import json

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


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
        if (kept := shapes(value)) is not None:
            found[name] = kept
        elif name == "sliding_window" and isinstance(value, int):
            found[name] = value
    return found


def run(model_type):
    config = CONFIG_MAPPING[model_type]()
    with torch.device("meta"), torch.no_grad():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        out = model(input_ids=torch.zeros(1, 24, dtype=torch.long), use_cache=True)
    cache = getattr(out, "past_key_values", None) or getattr(out, "cache_params", None)
    layers = [describe(layer) for layer in cache.layers]
    return {
        "model_type": model_type,
        "config": json.loads(config.to_json_string(use_diff=False)),
        "class": type(model).__name__,
        "layers": [[len(list(run)), layer] for layer, run in itertools.groupby(layers)],
    }


for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
    try:
        print(json.dumps(run(name)), flush=True)
    except Exception:
        pass  # no cache, or code that depends on data
