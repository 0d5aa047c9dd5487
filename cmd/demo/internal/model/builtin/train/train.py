"""Trains the built-in model: a Gemma 3 of half a million parameters, whose layers
have windows of 64 tokens and full attention in turn, on the chats of corpus.py.

    pip install torch==2.13.0 transformers==5.19.0
    python train.py OUT [MINUTES]

writes config.json, tokenizer.json, tokenizer_config.json and model.safetensors,
in 16 bits. The seed is fixed, but how many steps are made depends on the machine, so
two runs give different weights of the same worth. The files beside this folder are
from 72 minutes, 2,310 steps, on two processors that did much else, before this program
used the model and the optimizer of the libraries. Nothing is downloaded.
"""
import json, math, pathlib, random, sys, time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import corpus

VOCAB, HIDDEN, INNER, LAYERS, HEADS, KV, DIM, WINDOW, LENGTH = 768, 96, 256, 4, 4, 2, 32, 64, 256
TYPES = ["sliding_attention", "full_attention"] * (LAYERS // 2)
BASE = {"sliding_attention": 10000.0, "full_attention": 100000.0}
CONFIG = dict(
    model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], vocab_size=VOCAB, hidden_size=HIDDEN,
    intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=DIM,
    hidden_activation="gelu_pytorch_tanh", max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=True,
    rope_parameters={t: {"rope_type": "default", "rope_theta": BASE[t]} for t in BASE},
    attention_bias=False, query_pre_attn_scalar=DIM, sliding_window=WINDOW, layer_types=TYPES,
)
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def tokenizer(rng):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    text = (turn[1] for _ in range(5000) for turn in corpus.chat(rng))
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def encode(t, chat):
    """Tokens of a chat, and which of them the assistant says."""
    ids, mine = [], []
    for role, text in chat:
        head, body = t.encode(f"<|im_start|>{role}\n").ids, t.encode(f"{text}<|im_end|>").ids
        tail = t.encode("\n").ids
        ids += head + body + tail
        mine += [0] * len(head) + [role == "assistant"] * len(body) + [0] * len(tail)
    return ids[:LENGTH], mine[:LENGTH]


def batch(t, rng, tokens):
    """As many chats as have so many tokens, padded."""
    chats, longest = [], 0
    while True:
        chat = encode(t, corpus.chat(rng))
        if max(longest, len(chat[0])) * (len(chats) + 1) > tokens and chats:
            break
        chats.append(chat)
        longest = max(longest, len(chat[0]))
    x, w = np.zeros((len(chats), longest), np.int64), np.zeros((len(chats), longest), np.float32)
    for i, (ids, mine) in enumerate(chats):
        x[i, :len(ids)], w[i, :len(ids)] = ids, np.where(mine, 1.0, 0.05)
    return torch.from_numpy(x), torch.from_numpy(w)


def save(out, t, model):
    weights = {name: p.detach().to(torch.float16).contiguous() for name, p in model.named_parameters()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    (out / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}, indent=1) + "\n")
    t.save(str(out / "tokenizer.json"), pretty=False)


def main():
    out, seconds = pathlib.Path(sys.argv[1]), 60 * float(sys.argv[2] if len(sys.argv) > 2 else 15)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    rng = random.Random(1)
    t = tokenizer(rng)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**CONFIG, initializer_range=1 / math.sqrt(HIDDEN)))
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {t.get_vocab_size()} tokens", flush=True)
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if all(p is not q for q in matrices)]
    # Muon makes the update of each matrix orthogonal: in so few steps it gets further than Adam.
    optimizers = [(torch.optim.Muon(matrices, weight_decay=0.02), 0.02), (torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0), 4e-3)]
    began = time.time()
    step, left = 0, 1.0
    while left > 0:
        left = 1 - (time.time() - began) / seconds
        rate = min(1, (step + 1) / 50, 0.01 + 1.5 * max(left, 0))
        for opt, most in optimizers:
            for g in opt.param_groups:
                g["lr"] = rate * most
        x, w = batch(t, rng, 3072)
        logits = model(x[:, :-1]).logits
        each = F.cross_entropy(logits.reshape(-1, VOCAB), x[:, 1:].reshape(-1), reduction="none")
        weight = w[:, 1:].reshape(-1)
        loss = (each * weight).sum() / weight.sum()
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt, _ in optimizers:
            opt.step()
        if step % 25 == 0:
            mine = weight == 1
            right = (logits.reshape(-1, VOCAB).argmax(-1) == x[:, 1:].reshape(-1))[mine].float().mean()
            print(f"step {step} loss {each[mine].mean():.4f} right {right:.4f} {time.time() - began:.0f} s", flush=True)
        if step % 100 == 99:
            save(out, t, model)
        step += 1
    save(out, t, model)


main()
