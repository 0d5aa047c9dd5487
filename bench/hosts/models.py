"""Makes three small models with random weights.

    models.py DIR     writes DIR/llama, DIR/gemma and DIR/lfm2, unless they are there

Each has about 20 million float32 parameters and 16,384 positions. The Llama has four
layers of full attention, the Gemma five with a window of 512 tokens and one without, the
LFM2 four recurrent ones (short convolutions) and two of full attention.
A tokenizer of one token for each word w0 … w31999 comes with them.
"""

import sys
from pathlib import Path

VOCABULARY = 32000
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 16384,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.1,  # varied answers: with 0.02 they repeat one token
}


def make(folder: Path) -> dict[str, Path]:
    """Writes the models that are missing and returns the folder of each by name."""
    found = {name: folder / name for name in ("llama", "gemma", "lfm2")}
    for name, path in found.items():
        if not (path / "tokenizer.json").exists():
            _write(name, path)
    return found


def _write(name: str, path: Path) -> None:
    import torch
    import transformers as t

    torch.manual_seed(0)
    if name == "llama":
        model = t.LlamaForCausalLM(t.LlamaConfig(num_hidden_layers=4, **SHAPE))
    elif name == "lfm2":
        config = t.Lfm2Config(
            num_hidden_layers=6,
            layer_types=["conv", "conv", "full_attention"] * 2,
            tie_word_embeddings=False,
            block_auto_adjust_ff_dim=False,
            # vLLM reads these, which transformers has renamed.
            conv_dim=SHAPE["hidden_size"],
            conv_dim_out=SHAPE["hidden_size"],
            block_dim=SHAPE["hidden_size"],
            block_ff_dim=SHAPE["intermediate_size"],
            block_multiple_of=256,
            block_ffn_dim_multiplier=1.0,
            **SHAPE,
        )
        model = t.Lfm2ForCausalLM(config)
    else:
        layers = ["sliding_attention"] * 5 + ["full_attention"]
        config = t.Gemma3TextConfig(
            num_hidden_layers=6,
            sliding_window=512,
            layer_types=layers,
            tie_word_embeddings=False,  # tied ones repeat the last token
            **SHAPE,
        )
        model = t.Gemma3ForCausalLM(config)
    model.to(torch.float32).save_pretrained(path)
    _tokenizer().save_pretrained(path)


def _tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0", eos_token="w2")


if __name__ == "__main__":
    for path in make(Path(sys.argv[1])).values():
        print(path)
