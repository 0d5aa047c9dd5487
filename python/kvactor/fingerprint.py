"""Fingerprints of models: what two processes must have in common to share blocks.

Keys and values depend on the weights, and on how they are computed. A fingerprint is a
hash of a description by the caller (configuration, element types, layout) and of samples
of the weight files. Samples of every tensor tell two sets of weights apart without
reading all of them: training changes more than a few elements of the tensors it changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

SAMPLE_BYTES = 1024  # read at the start and in the middle of each tensor
SAMPLES = 256  # evenly spaced, of a file whose tensors are not known
HEADER_LIMIT = 100 << 20  # of safetensors

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")


def fingerprint(description: Mapping[str, Any], weights: str | os.PathLike[str] = "") -> str:
    """Returns 32 hexadecimal digits for a description and the weights at a path.

    The description must be serialisable as JSON; the order of its keys does not matter.
    The path names a file or a folder with weight files. An empty path, or one that does
    not exist, adds nothing: the description must then name the weights.
    """
    digest = hashlib.sha256()
    digest.update(json.dumps(description, sort_keys=True, default=str).encode())
    if weights:
        for path in weight_files(Path(weights)):
            digest.update(path.name.encode() + b"\0")
            digest.update(str(path.stat().st_size).encode() + b"\0")
            for sample in _samples(path):
                digest.update(sample)
    return digest.hexdigest()[:32]


def weight_files(path: Path) -> list[Path]:
    """The weight files at a path, sorted by name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    return sorted(p for p in path.iterdir() if p.suffix in WEIGHTS and p.is_file())


def _samples(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        size = path.stat().st_size
        places = _tensor_places(file, size) if path.suffix == ".safetensors" else None
        if places is None:
            places = [size * i // SAMPLES for i in range(SAMPLES)]
        for place in places:
            file.seek(place)
            yield file.read(SAMPLE_BYTES)


def _tensor_places(file: BinaryIO, size: int) -> list[int] | None:
    """Offsets of samples: the header, the start and the middle of each tensor.

    None if the file is not one of safetensors after all.
    """
    length = int.from_bytes(file.read(8), "little")
    if length > min(HEADER_LIMIT, size - 8):
        return None
    try:
        header = json.loads(file.read(length))
    except ValueError:
        return None
    places = list(range(0, 8 + length, SAMPLE_BYTES))
    for name, tensor in sorted(header.items()):
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            places += [8 + length + begin, 8 + length + (begin + end) // 2]
    return places
