"""What a host tells the daemon, and what it is told."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

NO_PAGE = -1
"""Stands in a list of pages where a block has none: outside a window, or not to write."""


class Kind(enum.Enum):
    """How far back the layers of a group attend."""

    FULL = "full"
    """To all tokens before."""
    WINDOW = "window"
    """To the last `window` tokens, the token's own included."""
    STATE = "state"
    """Not at all: a recurrent state stands for all tokens before it."""


@dataclass(frozen=True)
class Group:
    """Layers that share a table of blocks.

    block_tokens: tokens of a block, the same in all groups of a session.
    layer_bytes: the bytes of a block in each layer of one rank, in order. A page holds
        the layers one behind the other.
    window: tokens of the window; 0 with full attention and for states.
    """

    name: str
    block_tokens: int
    layer_bytes: tuple[int, ...]
    kind: Kind = Kind.FULL
    window: int = 0

    @property
    def page_bytes(self) -> int:
        """Bytes of a block in all layers of one rank."""
        return sum(self.layer_bytes)


@dataclass(frozen=True)
class Item:
    """A multimodal input: tokens [start, end) stand for the contents that digest names."""

    start: int
    end: int
    digest: str


@dataclass(frozen=True)
class Range:
    """The retention of tokens [start, end) of a prompt; end None: to its end.

    priority: 0 to 100, 35 by default; blocks of a higher one are evicted later.
    duration_ms: milliseconds after which the priority is 35 again; None: never.
    """

    start: int
    end: int | None
    priority: int
    duration_ms: int | None = None


@dataclass(frozen=True)
class Retention:
    """How long the blocks of a request are worth keeping."""

    ranges: tuple[Range, ...] = ()
    decode_priority: int | None = None
    decode_duration_ms: int | None = None


@dataclass(frozen=True)
class Prompt:
    """Tokens and what else their keys and values depend on.

    tokens: token ids, each 0 to 2³¹−1: a list, an array of integers, or packed as 4 bytes
        each, little-endian.
    salt, adapter: only requests with the same ones share blocks.
    session: the conversation that the blocks belong to.
    """

    tokens: Sequence[int] | npt.NDArray[Any] | bytes | bytearray | memoryview
    salt: str = ""
    adapter: str = ""
    items: tuple[Item, ...] = ()
    session: str = ""
    retention: Retention | None = field(default=None, compare=False)
