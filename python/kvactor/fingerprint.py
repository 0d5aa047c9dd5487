"""Fingerprints of models: what two processes must have in common to share blocks.

Keys and values depend on the weights, and on how they are computed. A fingerprint is a
hash of a description by the caller (configuration, element types, layout) and of a CRC-32
of each 4 MiB of the weights. All bytes are read, on several threads: one core reads 2.9
GiB/s from memory. A change of one place is overlooked once in 2³² times. Samples were
rejected: training may change some rows of an embedding and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PIECE = 4 << 20  # bytes of which a checksum is taken
THREADS = min(16, os.cpu_count() or 1)

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")


def fingerprint(description: Mapping[str, Any], weights: str | os.PathLike[str] = "") -> str:
    """Returns 32 hexadecimal digits for a description and the weights at a path.

    The description must be serialisable as JSON; the order of its keys does not matter.
    The path names a file or a folder with weight files. An empty path, or one that does
    not exist, adds nothing: the description must then name the weights.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps(description, sort_keys=True, default=str).encode())
    files = weight_files(Path(weights)) if weights else []
    if files:
        digest.update(checksum_files(files))
    return digest.hexdigest()[:32]


def weight_files(path: Path) -> list[Path]:
    """The weight files at a path, sorted by name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    return sorted(p for p in path.iterdir() if p.suffix in WEIGHTS and p.is_file())


def checksum_files(paths: Iterable[Path]) -> bytes:
    """The names, sizes and checksums of files, hashed."""
    digest = hashlib.sha256()
    with ThreadPoolExecutor(THREADS) as pool:
        for path in paths:
            size = path.stat().st_size
            digest.update(f"{path.name}\0{size}\0".encode())
            for crc in pool.map(_file_crc, _repeat(path, size), range(0, size, PIECE)):
                digest.update(crc.to_bytes(4, "little"))
    return digest.digest()


def checksum_arrays(arrays: Iterable[tuple[str, memoryview]]) -> bytes:
    """The names, sizes and checksums of arrays of bytes, hashed."""
    digest = hashlib.sha256()
    with ThreadPoolExecutor(THREADS) as pool:
        for name, data in arrays:
            digest.update(f"{name}\0{len(data)}\0".encode())
            pieces = (data[at : at + PIECE] for at in range(0, len(data), PIECE))
            for crc in pool.map(zlib.crc32, pieces):
                digest.update(crc.to_bytes(4, "little"))
    return digest.digest()


def _repeat(path: Path, size: int) -> Iterable[Path]:
    return (path for _ in range(0, size, PIECE))


def _file_crc(path: Path, offset: int) -> int:
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        crc, left = 0, PIECE
        while left:
            data = file.read(left)
            if not data:
                break
            crc, left = zlib.crc32(data, crc), left - len(data)
        return crc
