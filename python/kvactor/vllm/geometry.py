"""The groups of layers that a vLLM keeps, as the groups of a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from kvactor.types import Group, Kind

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import (
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheSpec,
        MambaSpec,
    )


class UnsupportedCacheError(ValueError):
    """A cache of this vLLM has layers that the connector cannot keep."""


@dataclass(frozen=True)
class CacheGroup:
    """One KV cache group of vLLM: its index in vLLM's lists, its layers, its place."""

    index: int
    layers: tuple[str, ...]
    group: Group


def cache_groups(config: KVCacheConfig) -> list[CacheGroup]:
    """The groups that take part in transfers, in vLLM's order.

    Raises UnsupportedCacheError for cross-attention layers, for recurrent ones whose states
    vLLM doesn't keep at the ends of blocks, for blocks of different numbers of tokens, and for
    numbers that are not powers of two.
    """
    groups = [
        CacheGroup(i, tuple(g.layer_names), _group(i, g))
        for i, g in enumerate(config.kv_cache_groups)
        if getattr(g, "enable_kv_transfer", True)
    ]
    if not groups:
        raise UnsupportedCacheError("the model has no KV cache")
    tokens = {g.group.block_tokens for g in groups}
    if len(tokens) > 1:
        raise UnsupportedCacheError(
            f"groups have blocks of {sorted(tokens)} tokens, not of one size"
        )
    size = tokens.pop()
    if size < 2 or size & (size - 1):
        raise UnsupportedCacheError(f"blocks have {size} tokens, which is not a power of two")
    return groups


def _group(index: int, of: KVCacheGroupSpec) -> Group:
    spec = of.kv_cache_spec
    specs = _layer_specs(spec, of.layer_names)
    if of.is_eagle_group:
        raise UnsupportedCacheError(f"group {index} has layers of a drafter")
    kinds = {_kind(s) for s in specs}
    if len(kinds) > 1:
        raise UnsupportedCacheError(f"group {index} has layers of {len(kinds)} kinds")
    kind, window = kinds.pop()
    sizes = tuple(_block_bytes(s) for s in specs)
    return Group(f"group{index}", spec.block_size, sizes, kind, window)


def _layer_specs(spec: KVCacheSpec, names: list[str]) -> list[KVCacheSpec]:
    each: dict[str, KVCacheSpec] | None = getattr(spec, "kv_cache_specs", None)
    return [each[name] for name in names] if each else [spec] * len(names)


def state_formats(config: KVCacheConfig) -> list[str]:
    """What the bytes of states mean, by recurrent layer: types of one size differ in that."""
    return [
        f"{name} {spec.mamba_type} {spec.shapes} {spec.dtypes}"
        for g in config.kv_cache_groups
        for name, spec in zip(
            g.layer_names, _layer_specs(g.kv_cache_spec, g.layer_names), strict=True
        )
        if _recurrent(spec)
    ]


def _recurrent(spec: Any) -> TypeGuard[MambaSpec]:
    return type(spec).__name__ == "MambaSpec"


def _block_bytes(spec: Any) -> int:
    """Bytes of a block of a layer, without what pads it to the size of other groups' blocks."""
    if _recurrent(spec):
        return int(spec.state_content_size_bytes)
    return int(getattr(spec, "unpadded_page_size_bytes", spec.page_size_bytes))


def _kind(spec: Any) -> tuple[Kind, int]:
    """The kind of a layer and its window in tokens; 0 for full attention and states.

    Subclasses of these specifications keep something else in a block, or free blocks
    by rules of their own, so the name has to be exact. With the hybrid manager off vLLM
    keeps layers with a window as full ones, and so does the connector.
    """
    name = type(spec).__name__
    if name in ("FullAttentionSpec", "MLAAttentionSpec"):
        return Kind.FULL, 0
    if name == "SlidingWindowSpec":
        return Kind.WINDOW, int(spec.sliding_window) + int(spec.extra_retained_tokens)
    if _recurrent(spec):
        if spec.mamba_cache_mode != "align":
            raise UnsupportedCacheError(
                "recurrent layers need vLLM's prefix caching, with mamba_cache_mode align, "
                f"not {spec.mamba_cache_mode}"
            )
        return Kind.STATE, 0
    raise UnsupportedCacheError(f"layers with a {name} are not kept")
