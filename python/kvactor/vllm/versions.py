"""The versions of vLLM that the connector was tried with, and what others changed."""

from __future__ import annotations

import inspect
import re

TRIED = ("0.32.0",)

# The parameters of the methods of KVConnectorBase_V1 that the connector implements or
# relies on, as they are in the versions above.
METHODS: dict[str, tuple[str, ...]] = {
    "__init__": ("vllm_config", "role", "kv_cache_config"),
    "bind_connector_metadata": ("connector_metadata",),
    "build_connector_meta": ("scheduler_output",),
    "build_connector_worker_meta": (),
    "build_kv_connector_stats": ("data",),
    "build_prom_metrics": (
        "vllm_config",
        "metric_types",
        "labelnames",
        "per_engine_labelvalues",
    ),
    "get_kv_connector_stats": (),
    "get_num_new_matched_tokens": ("request", "num_computed_tokens"),
    "get_transfer_results": ("finished_req_ids",),
    "handle_preemptions": ("kv_connector_metadata",),
    "register_kv_caches": ("kv_caches",),
    "reset_cache": (),
    "save_kv_layer": ("layer_name", "kv_layer", "attn_metadata", "kwargs"),
    "shutdown": (),
    "start_load_kv": ("forward_context", "kwargs"),
    "update_connector_output": ("connector_output",),
    "update_state_after_alloc": ("request", "blocks", "num_external_tokens"),
    "wait_for_layer_load": ("layer_name",),
    "wait_for_save": (),
}


class UntriedVersionError(RuntimeError):
    """The installed vLLM is not one of those that the connector was tried with."""


def require(version: str, base: type, untried: bool = False) -> None:
    """Refuses a version that was not tried, in a sentence that says what it changed.

    base is the version's KVConnectorBase_V1. With untried, only a version that has
    changed the interface is refused.
    """
    release = re.match(r"\d+(\.\d+)*", version)
    if release and release.group() in TRIED:
        return
    found = changes(base)
    if untried and not found:
        return
    what = "; ".join(found) if found else "the interface of connectors is the same"
    hint = "" if found else ', and {"untried": true} in the extra config admits it'
    raise UntriedVersionError(
        f"kvactor was tried with vLLM {' and '.join(TRIED)}, not with {version}: {what}{hint}"
    )


def changes(base: type) -> list[str]:
    """What differs between a connector base class and the one the connector is for."""
    found = []
    for name, wanted in METHODS.items():
        method = inspect.getattr_static(base, name, None)
        if method is None:
            found.append(f"it has no {name}")
            continue
        function = method.__func__ if isinstance(method, classmethod) else method
        names = tuple(inspect.signature(function).parameters)
        names = tuple(n for n in names if n not in ("self", "cls"))
        if names != wanted:
            found.append(f"{name} takes ({', '.join(names)}), not ({', '.join(wanted)})")
    known = set(METHODS)
    abstract: frozenset[str] = getattr(base, "__abstractmethods__", frozenset())
    found += [f"it requires {name}" for name in sorted(abstract - known)]
    return found
