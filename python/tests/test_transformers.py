import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kvactor.transformers import KvactorCache  # noqa: E402

SHAPE = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.1,
}


def make(name):
    torch.manual_seed(0)
    if name == "llama":
        config = transformers.LlamaConfig(num_hidden_layers=2, **SHAPE)
        return transformers.LlamaForCausalLM(config).eval()
    config = transformers.Gemma3TextConfig(
        num_hidden_layers=3,
        sliding_window=40,
        layer_types=["sliding_attention"] * 2 + ["full_attention"],
        tie_word_embeddings=False,
        **SHAPE,
    )
    return transformers.Gemma3ForCausalLM(config).eval()


class Computed(list):
    """The number of tokens of each forward of a model."""

    def __init__(self, model):
        super().__init__()
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module, args, kwargs):
        self.append(kwargs["input_ids"].shape[1])


def turn_tokens(turn):
    g = torch.Generator().manual_seed(turn)
    return torch.randint(10, 500, (1, 40 + 7 * turn), generator=g)


def extend(ids, turn):
    return torch.cat([ids, turn_tokens(turn)], 1)


OPTIONS = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_ten_turns_compute_what_is_new(daemon, name):
    model = make(name)
    cache = KvactorCache(model, daemon.path)
    computed = Computed(model)
    ids = torch.zeros((1, 0), dtype=torch.long)
    for turn in range(10):
        before = ids.shape[1]
        ids = extend(ids, turn)
        computed.clear()
        out = cache.generate(model, ids, **OPTIONS)
        # The last token of an answer has not gone through the model.
        assert computed[0] == ids.shape[1] - max(0, before - 1)
        assert torch.equal(out, model.generate(ids, **OPTIONS))
        ids = out
    cache.close()


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_another_process_computes_what_is_new_and_less_than_a_block(daemon, name):
    model = make(name)
    cache = KvactorCache(model, daemon.path)
    out = cache.generate(model, extend(extend(turn_tokens(0), 1), 2), **OPTIONS)
    cache.close()
    ids = extend(out, 3)
    code = f"""
        import torch
        from test_transformers import OPTIONS, Computed, KvactorCache, make
        model = make({name!r})
        cache = KvactorCache(model, {str(daemon.path)!r})
        computed = Computed(model)
        out = cache.generate(model, torch.tensor([{ids[0].tolist()}]), **OPTIONS)
        print(computed[0], *out[0].tolist())
        cache.close()
    """
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=env,
    )
    computed, *tokens = [int(word) for word in done.stdout.split()]
    new = turn_tokens(3).shape[1]
    assert new < computed <= new + 16
    assert tokens == model.generate(ids, **OPTIONS)[0].tolist()


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_another_branch_of_a_chat(daemon, name):
    model = make(name)
    first = KvactorCache(model, daemon.path)
    long = torch.cat([turn_tokens(i) for i in range(6)], 1)
    first.generate(model, long, **OPTIONS)
    cache = KvactorCache(model, daemon.path)
    for ids in (extend(long, 8), extend(long[:, :200], 9), extend(long[:, :90], 9), long):
        out = cache.generate(model, ids, **OPTIONS)
        assert torch.equal(out, model.generate(ids, **OPTIONS))
    first.close()
    cache.close()


def test_without_a_daemon_all_is_computed(daemon):
    model = make("llama")
    cache = KvactorCache(model, daemon.path)
    ids = extend(turn_tokens(0), 1)
    cache.generate(model, ids, **OPTIONS)
    session = cache._link.session
    os.kill(int(session.attachment.pools[0].path.split("/")[2]), signal.SIGKILL)
    ids = extend(turn_tokens(4), 5)
    assert torch.equal(cache.generate(model, ids, **OPTIONS), model.generate(ids, **OPTIONS))
    cache.close()


def test_models_with_other_weights_share_nothing(daemon):
    one = make("llama")
    with torch.no_grad():
        two = make("llama")
        two.model.layers[1].mlp.down_proj.weight.mul_(1.01)
    ids = extend(turn_tokens(0), 1)
    first, second = KvactorCache(one, daemon.path), KvactorCache(two, daemon.path)
    first.generate(one, ids, **OPTIONS)
    assert second.load(ids) == 0
    first.close()
    second.close()


def test_recurrent_layers_are_refused(daemon):
    config = transformers.MambaConfig(
        vocab_size=100, hidden_size=32, state_size=4, num_hidden_layers=1
    )
    with pytest.raises(NotImplementedError, match="LinearAttentionLayer"):
        KvactorCache(transformers.MambaForCausalLM(config), daemon.path)


def test_beams_masks_and_several_sequences_are_not_stored(daemon):
    model = make("llama")
    ids = extend(turn_tokens(0), 1)
    mask = torch.ones_like(ids)
    mask[:, :5] = 0
    cache = KvactorCache(model, daemon.path)
    for more in (
        {"num_beams": 4},
        {"attention_mask": mask},
        {"do_sample": True, "num_return_sequences": 2},
    ):
        out = cache.generate(model, ids, **{**OPTIONS, **more})
        assert out.shape[0] == more.get("num_return_sequences", 1)
    assert cache.load(ids) == 0
    cache.close()


def test_inputs_beside_the_tokens_are_not_stored(daemon):
    model = make("llama")
    ids = extend(turn_tokens(0), 1)
    cache = KvactorCache(model, daemon.path)
    embeds = model.model.embed_tokens(ids) + 1
    positions = torch.arange(7, 7 + ids.shape[1]).unsqueeze(0)
    for more in ({"inputs_embeds": embeds}, {"position_ids": positions}):
        cache.generate(model, ids, **{**OPTIONS, **more})
        assert cache.load(ids) == 0
    cache.close()


def write_in_place(model):
    with torch.no_grad():
        model.model.embed_tokens.weight[50] += 1


def write_data(model):
    model.model.embed_tokens.weight.data[50] += 1


def write_one_bit(model):
    model.model.layers[1].mlp.down_proj.weight.detach().numpy().view("u1")[3, 5] ^= 1


def swap_rows(model):
    weight = model.model.layers[0].mlp.up_proj.weight.data
    weight[[0, 1]] = weight[[1, 0]]


def replace(model):
    layer = model.model.layers[0].mlp.up_proj
    layer.weight = torch.nn.Parameter(layer.weight + 1)


@pytest.mark.parametrize("change", [write_in_place, write_data, write_one_bit, swap_rows, replace])
def test_weights_that_change_after_the_cache_was_made(daemon, change, caplog):
    model = make("llama")
    ids = extend(turn_tokens(0), 1)
    cache = KvactorCache(model, daemon.path)
    change(model)
    cache.generate(model, ids, **OPTIONS)
    assert "the weights are not those that the cache was made for" in caplog.text
    assert cache.load(ids) == 0
    changed = KvactorCache(model, daemon.path)
    changed.generate(model, ids, **OPTIONS)
    assert changed.load(ids) > 0
    assert cache.load(ids) == 0
    cache.close()
    changed.close()


def test_a_model_with_equal_weights_is_the_same(daemon):
    ids = extend(turn_tokens(0), 1)
    cache = KvactorCache(make("llama"), daemon.path)
    cache.generate(make("llama"), ids, **OPTIONS)
    assert cache.load(ids) > 0
    cache.close()


def test_weights_that_are_changed_back_are_used_again(daemon):
    model = make("llama")
    ids = extend(turn_tokens(0), 1)
    cache = KvactorCache(model, daemon.path)
    cache.generate(model, ids, **OPTIONS)
    model.model.embed_tokens.weight.data[50] *= 2
    changed = cache.generate(model, ids, **OPTIONS)
    assert torch.equal(changed, model.generate(ids, **OPTIONS))
    model.model.embed_tokens.weight.data[50] /= 2
    computed = Computed(model)
    assert torch.equal(
        cache.generate(model, ids, **OPTIONS), make("llama").generate(ids, **OPTIONS)
    )
    assert computed[0] < ids.shape[1]
    cache.close()
