"""What identifies the weights of an adapter."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vllm.logger import init_logger

from kvactor.fingerprint import checksum_files
from kvactor.vllm.once import warn_once

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

K = TypeVar("K")
V = TypeVar("V")

logger = init_logger(f"vllm.{__name__}")

LIMIT = 4096
"""Adapters that are remembered; those used longest ago are forgotten first."""

SETTLED_SECONDS = 0.1
"""Files that are older than this have another timestamp after the next change."""

CHANGED = ""
"""Stands for the checksum of an adapter of which vLLM may have loaded any version."""

Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Of each file: name, size, time of change of the bytes and of the inode in ns, inode."""


class Adapters:
    """Names adapters by the bytes of their files.

    The checksum of an adapter is kept until a file of it has another stamp. vLLM loads an
    adapter once for each id, and again only in place, or after its own cache has dropped
    it. So an id whose files have changed since names nothing.
    """

    def __init__(self) -> None:
        self._loaded: dict[int, str] = {}  # by id
        self._checksums: dict[str, tuple[Stamp, str]] = {}  # by path

    def name(self, lora: LoRARequest | None) -> str | None:
        """The adapter's name with a checksum; "" for none, None if it is not known."""
        if lora is None:
            return ""
        try:
            found = self._checksum(lora.lora_path)
        except OSError as error:
            self._warn(lora, f"its files cannot be read: {error.strerror}")
            return None
        if found is None:
            self._warn(lora, "its path is not a local folder with files adapter_*")
            return None
        loaded = self._loaded.pop(lora.lora_int_id, found)
        if loaded != found:
            loaded = found if lora.load_inplace else CHANGED
        _remember(self._loaded, lora.lora_int_id, loaded)
        if loaded == CHANGED:
            self._warn(lora, "its files have changed since vLLM loaded it; load it again")
            return None
        return f"{lora.lora_name}:{loaded}"

    def _warn(self, lora: LoRARequest, why: str) -> None:
        warn_once(logger, f"requests with adapter {lora.lora_name[:40]!a} are computed: {why}")

    def _checksum(self, path: str) -> str | None:
        folder = Path(path).expanduser()
        files = sorted(folder.glob("adapter_*")) + sorted(folder.glob("new_embeddings*"))
        files = [file for file in files if file.is_file()]
        if not files:
            return None
        stamp = _stamp(files)
        known = self._checksums.pop(path, None)
        if known is None or known[0] != stamp:
            began = time.time_ns()
            known = stamp, checksum_files(files).hex()[:32]
            if any(began - max(times) < SETTLED_SECONDS * 1e9 for _, _, *times, _ in stamp):
                return known[1]
        _remember(self._checksums, path, known)
        return known[1]


def _stamp(files: list[Path]) -> Stamp:
    found = [(file.name, file.stat()) for file in files]
    return tuple((n, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for n, s in found)


def _remember(known: dict[K, V], key: K, value: V) -> None:
    known[key] = value
    if len(known) > LIMIT:
        del known[next(iter(known))]
