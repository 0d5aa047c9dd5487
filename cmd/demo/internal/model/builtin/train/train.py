"""Trains the built-in model: a Gemma 3 of half a million parameters, whose layers
have windows of 64 tokens and full attention in turn, on the chats of corpus.py.

    pip install torch==2.8.0 numpy tokenizers safetensors
    python train.py OUT [MINUTES]

writes config.json, tokenizer.json, tokenizer_config.json and model.safetensors,
in 16 bits. The seed is fixed, but how many steps are made depends on the machine, so
two runs give different weights of the same worth. The files beside this folder are
from 72 minutes, 2,310 steps, on two processors that did much else. Nothing is
downloaded.
"""
import json, math, pathlib, random, sys, time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

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


class Norm(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


def linear(out, into):
    m = torch.nn.Linear(into, out, bias=False)
    torch.nn.init.normal_(m.weight, std=1 / math.sqrt(into))
    return m


class Attention(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = linear(HEADS * DIM, HIDDEN), linear(KV * DIM, HIDDEN), linear(KV * DIM, HIDDEN)
        self.o_proj, self.q_norm, self.k_norm = linear(HIDDEN, HEADS * DIM), Norm(DIM), Norm(DIM)
        angle = torch.arange(LENGTH)[:, None] * BASE[kind] ** (-torch.arange(0, DIM, 2) / DIM)
        self.cos, self.sin = angle.cos(), angle.sin()
        behind = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        self.mask = (behind >= 0) & (behind < (WINDOW if kind == "sliding_attention" else LENGTH))

    def turn(self, x, n):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[:n], self.sin[:n]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.turn(self.q_norm(self.q_proj(x).view(b, n, HEADS, DIM)).transpose(1, 2), n)
        k = self.turn(self.k_norm(self.k_proj(x).view(b, n, KV, DIM)).transpose(1, 2), n)
        v = self.v_proj(x).view(b, n, KV, DIM).transpose(1, 2)
        k, v = k.repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:n, :n])
        return self.o_proj(y.transpose(1, 2).reshape(b, n, HEADS * DIM))


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(INNER, HIDDEN), linear(INNER, HIDDEN), linear(HIDDEN, INNER)

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Layer(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.self_attn, self.mlp = Attention(kind), MLP()

    def forward(self, x):
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x)))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(VOCAB, HIDDEN)
        torch.nn.init.normal_(self.embed_tokens.weight, std=1 / math.sqrt(HIDDEN))
        self.layers, self.norm = torch.nn.ModuleList(Layer(t) for t in TYPES), Norm(HIDDEN)

    def forward(self, tokens):
        x = self.embed_tokens(tokens) * math.sqrt(HIDDEN)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed_tokens.weight.T


class Muon(torch.optim.Optimizer):
    """Momentum whose update of each matrix is made orthogonal (Jordan and others,
    2024): in so few steps it gets further than Adam."""

    def __init__(self, matrices):
        super().__init__(matrices, dict(lr=1.0))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 0.05)
                x = p.grad.lerp(m, 0.95)
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if tall else x
                p.mul_(1 - 0.02 * g["lr"]).sub_(x, alpha=g["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


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
    weights = {"model." + name: p.detach().to(torch.float16).contiguous() for name, p in model.named_parameters()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    (out / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}, indent=1) + "\n")
    t.save(str(out / "tokenizer.json"), pretty=False)


def main():
    out, seconds = pathlib.Path(sys.argv[1]), 60 * float(sys.argv[2] if len(sys.argv) > 2 else 15)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    rng = random.Random(1)
    t, model = tokenizer(rng), Model()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {t.get_vocab_size()} tokens", flush=True)
    matrices = [p for p in model.layers.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if all(p is not q for q in matrices)]
    optimizers = [(Muon(matrices), 0.02), (torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0), 4e-3)]
    began = time.time()
    step, left = 0, 1.0
    while left > 0:
        left = 1 - (time.time() - began) / seconds
        rate = min(1, (step + 1) / 50, 0.01 + 1.5 * max(left, 0))
        for opt, most in optimizers:
            for g in opt.param_groups:
                g["lr"] = rate * most
        x, w = batch(t, rng, 3072)
        logits = model(x[:, :-1])
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
