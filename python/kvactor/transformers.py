"""A cache for models of transformers whose prefixes come from a daemon.

    cache = KvactorCache(model, "/run/kvactor.sock")
    ids = tokenizer.apply_chat_template(messages, return_tensors="pt")
    out = cache.generate(model, ids, max_new_tokens=100)

A turn of a chat computes the tokens that are new in it. Another process that goes on with
the chat computes those, and the last block if it is not whole.
Tried with transformers 5.19.0.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from kvactor.client import Match, Pages, Reserve, Session
from kvactor.errors import KvactorError
from kvactor.fingerprint import checksum_arrays, fingerprint
from kvactor.link import Link
from kvactor.memory import Blocks, copy
from kvactor.types import NO_PAGE, Group, Kind, Prompt

logger = logging.getLogger(__name__)


class KvactorCache(Cache):
    """The keys and values of one sequence, kept in blocks by a daemon as well.

    model: a causal language model with full, sliding or chunked attention.
    socket: the path of the daemon's socket.
    block_tokens: tokens of a block, a power of two. Small blocks leave less to compute
        in another process, large ones cost less bookkeeping.
    salt, adapter, session: as in kvactor.types.Prompt.

    A daemon that is not there costs the computation of what it would have had.
    """

    def __init__(
        self,
        model: Any,
        socket: str | os.PathLike[str],
        *,
        block_tokens: int = 16,
        salt: str = "",
        adapter: str = "",
        session: str = "",
        deadline: float = 1.0,
    ) -> None:
        shapes = _probe(model)
        super().__init__(layers=[DynamicLayer() for _ in shapes.layers])
        self._shapes = shapes
        self._block = block_tokens
        self._namespace = Prompt((), salt=salt, adapter=adapter, session=session)
        self._tokens: list[int] = []
        self._zeros: list[set[int]] = []  # blocks of each group that were not loaded
        self._groups = shapes.groups(block_tokens)
        self._weights = _weights(model)
        self._link = Link(
            os.fspath(socket),
            name="transformers",
            fingerprint=_fingerprint(model, block_tokens, self._weights),
            groups=[group for group, _ in self._groups],
            deadline=deadline,
            log=logger.info,
        )

    def generate(self, model: Any, ids: torch.Tensor, **options: Any) -> Any:
        """model.generate of ids, shape (1, tokens), that computes what is new in them.

        The keys and values of what it computes are given to the daemon. Returns what
        model.generate returns. Several beams or sequences, masks with zeros, and a model
        whose weights are not those that the cache was made for are generated without the
        cache, with a warning.

        Each call reads every weight to see whether it has changed, however it was written.
        On two cores that takes as long as computing one or two tokens.
        """
        why = _unfit(model, ids, options)
        if not why and _weights(model) != self._weights:
            why = "the weights are not those that the cache was made for"
        if why:
            logger.warning("kvactor: generated without the cache: %s", why)
            return model.generate(ids, **options)
        self.load(ids)
        # With a mask as long as ids generate knows that the cache holds some of them.
        options.setdefault("attention_mask", torch.ones_like(ids))
        out = model.generate(ids, past_key_values=self, **options)
        self.store(out if isinstance(out, torch.Tensor) else out.sequences)
        return out

    def load(self, ids: torch.Tensor | Sequence[int]) -> int:
        """Makes the cache hold a prefix of ids, and returns its number of tokens.

        At least one token is left to compute. What the cache held and ids do not begin
        with is dropped.
        """
        tokens = _row(ids)
        held = self._crop(_common(self._tokens, tokens[:-1]))
        session = self._link.session
        if session is not None:
            with self._link.guard(session, _NoCounts()):
                match = session.match(self._prompt(tokens))
                if match.tokens > held:
                    self._fill(session, match, tokens)
                session.release(match.handle)
                session.flush()
        return int(self.get_seq_length())

    def store(self, ids: torch.Tensor | Sequence[int]) -> int:
        """Gives whole blocks to the daemon that it lacks, and returns the tokens it has.

        ids: the tokens whose keys and values the cache holds, and possibly more.
        """
        self._tokens = _row(ids)[: self.get_seq_length()]
        last = len(self._tokens) // self._block
        session = self._link.session
        if session is None or last == 0:
            return 0
        with self._link.guard(session, _NoCounts()):
            prompt = self._prompt(self._tokens[: last * self._block])
            # What was not loaded has left its window, and a tail has no pages for it.
            write = session.reserve(Reserve(prompt, tail=any(self._zeros)))
            if write.handle:
                self._copy(session, write.pages, last, to_pages=True)
                session.written(write.handle, last * self._block)
                session.release(write.handle)
                session.flush()
            return last * self._block
        return 0

    def close(self) -> None:
        """Ends the session with the daemon."""
        self._link.close()

    def _prompt(self, tokens: Sequence[int]) -> Prompt:
        n = self._namespace
        return Prompt(tokens, salt=n.salt, adapter=n.adapter, session=n.session)

    def _crop(self, tokens: int) -> int:
        """Drops all but so many tokens, or all, if a window reaches what was not loaded."""
        for (group, _), zeros in zip(self._groups, self._zeros, strict=False):
            first = max(0, tokens - group.window + 1) // self._block
            if any(first <= block and block * self._block < tokens for block in zeros):
                tokens = 0
        surplus = self.get_seq_length() - tokens
        if tokens == 0:
            self.reset()
            self._zeros = []
        elif surplus > 0:
            for layer in self.layers:
                layer.crop(-surplus)
        self._tokens = self._tokens[:tokens]
        return tokens

    def _fill(self, session: Session, match: Match, tokens: list[int]) -> None:
        """Makes the layers hold the match. Blocks outside of windows stay zero."""
        last = match.tokens // self._block
        held = [
            (layer.keys, layer.values) if layer.is_initialized else None for layer in self.layers
        ]
        for layer, (keys, values) in zip(
            self.layers, self._shapes.empty(match.tokens), strict=True
        ):
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        try:
            self._copy(session, match.pages, last, to_pages=False)
        except KvactorError:
            for layer, before in zip(self.layers, held, strict=True):
                if before is None:
                    layer.reset()
                else:
                    layer.keys, layer.values = before
            raise
        self._tokens = tokens[: match.tokens]
        self._zeros = [
            {b for b in range(last) if match.pages[pool][b] == NO_PAGE}
            for pool in self._pools(session)
        ]

    def _pools(self, session: Session) -> list[int]:
        """The pool of each group. Layers of one group have one, as they are of one kind."""
        memory = session.memory()
        return [memory.pools(i)[0] for i in range(len(self._groups))]

    def _copy(self, session: Session, pages: Pages, last: int, to_pages: bool) -> None:
        """Copies the first blocks of all layers to or from the pages that there are."""
        memory = session.memory()
        for i, (_, layers) in enumerate(self._groups):
            for pool, page, blocks in zip(
                memory.pools(i), memory.layers(i), self._blocks(layers, last), strict=True
            ):
                kept = np.flatnonzero(pages[pool][:last] != NO_PAGE)
                if to_pages:
                    copy(page, pages[pool][kept], blocks, kept)
                else:
                    copy(blocks, kept, page, pages[pool][kept])

    def _blocks(self, layers: list[int], count: int) -> list[Blocks]:
        """The first blocks of the layers: keys and values of each, in that order."""
        found = []
        for index in layers:
            for states in (self.layers[index].keys, self.layers[index].values):
                whole = states[0, :, : count * self._block]
                blocks = whole.unflatten(1, (count, self._block)).movedim(1, 0)
                found.append(Blocks.of_tensor(blocks))
        return found


class _Shapes:
    """The shapes of a model's keys and values, and the windows of its layers."""

    def __init__(self, layers: list[DynamicLayer]) -> None:
        self.layers = [(layer.keys[:, :, :0], layer.values[:, :, :0]) for layer in layers]
        self.windows = [int(getattr(layer, "sliding_window", 0)) for layer in layers]

    def empty(self, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Zeros of shape (1, heads, tokens, elements) for keys and values of each layer."""
        found = []
        for keys, values in self.layers:
            heads = (1, keys.shape[1], tokens)
            found.append(
                (keys.new_zeros(*heads, keys.shape[3]), values.new_zeros(*heads, values.shape[3]))
            )
        return found

    def groups(self, block_tokens: int) -> list[tuple[Group, list[int]]]:
        """A group for each window, with its layers."""
        by_window: dict[int, list[int]] = {}
        for index, window in enumerate(self.windows):
            by_window.setdefault(window, []).append(index)
        found = []
        for window, indexes in sorted(by_window.items()):
            sizes = [
                states.shape[1] * states.shape[3] * states.element_size() * block_tokens
                for index in indexes
                for states in self.layers[index]
            ]
            kind = Kind.WINDOW if window else Kind.FULL
            name = f"window{window}" if window else "full"
            found.append((Group(name, block_tokens, tuple(sizes), kind, window), indexes))
        return found


class _NoCounts:
    def add(self, name: str, value: float) -> None:
        """Counts nothing."""


def _probe(model: Any) -> _Shapes:
    """Computes one token to learn the shapes of a model's keys and values."""
    cache = DynamicCache(config=model.config)
    for layer in cache.layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise NotImplementedError(
                f"{type(model).__name__} has layers with a {type(layer).__name__}: "
                "only full, sliding and chunked attention are kept"
            )
    with torch.no_grad():
        token = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        model(input_ids=token, past_key_values=cache, use_cache=True)
    if model.device.type != "cpu":
        raise NotImplementedError(f"the model is on {model.device}, not on the CPU")
    return _Shapes(cache.layers)


def _fingerprint(model: Any, block_tokens: int, weights: str) -> str:
    """Hashes the configuration and the weights."""
    config = model.config.to_dict()
    for volatile in ("_name_or_path", "transformers_version"):
        config.pop(volatile, None)
    described = {
        "host": "transformers",
        "config": config,
        "dtype": str(model.dtype),
        "block_tokens": block_tokens,
        "weights": weights,
    }
    return fingerprint(described)


def _weights(model: Any) -> str:
    """A checksum of all parameters as they are in memory.

    Versions of tensors were rejected: writes through `.data` do not count in them.
    """
    arrays = (
        (f"{name} {tuple(t.shape)} {t.dtype}", _bytes(t)) for name, t in model.state_dict().items()
    )
    return checksum_arrays(arrays).hex()


def _bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy())


def _unfit(model: Any, ids: torch.Tensor, options: dict[str, Any]) -> str:
    """Says why the keys and values of a generation are not those of one row of tokens."""
    for name in ("num_beams", "num_return_sequences"):
        value = options.get(name)
        for config in (options.get("generation_config"), model.generation_config):
            if value is None:
                value = getattr(config, name, None)
        if value not in (None, 1):
            return f"{name} is {value}"
    for name, value in options.items():
        if name != "attention_mask" and isinstance(value, torch.Tensor):
            return f"{name} are inputs beside the tokens"
    for name in ("assistant_model", "prompt_lookup_num_tokens"):
        if options.get(name) is not None:
            return f"{name} computes tokens that are taken back"
    mask = options.get("attention_mask")
    if mask is not None and (mask.shape != ids.shape or not bool((mask == 1).all())):
        return "the attention mask hides tokens"
    return ""


def _row(ids: torch.Tensor | Sequence[int]) -> list[int]:
    """The tokens of one sequence, given as a list or as a tensor (1, n) or (n)."""
    if isinstance(ids, torch.Tensor):
        if ids.dim() == 2 and ids.shape[0] != 1:
            raise ValueError(f"{ids.shape[0]} sequences: a KvactorCache holds one")
        return [int(token) for token in ids.reshape(-1).tolist()]
    return list(ids)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
