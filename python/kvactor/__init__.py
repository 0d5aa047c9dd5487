"""A client of kvactord, the KV cache engine kvactor as a process.

`connect` gives a client of a daemon that runs, `spawn` starts one that ends with this
process. A client opens sessions (`kvactor.client.Session`), whose pages lie in memory
that this process maps (`kvactor.mapping.Memory`). `kvactor.memory.copy` moves blocks
between a host's tensors and pages.

`kvactor.vllm` is a connector for vLLM, `kvactor.transformers` a cache for transformers.
"""

from kvactor.attached import Attached
from kvactor.client import (
    Client,
    Extend,
    Lookup,
    Match,
    Reserve,
    Session,
    Write,
    connect,
)
from kvactor.daemon import Daemon, NoDaemonError, find, spawn
from kvactor.errors import KvactorError, ProtocolError, RefusedError, UnreachableError
from kvactor.fingerprint import fingerprint
from kvactor.mapping import Attachment, Memory, attach
from kvactor.memory import Blocks, copy
from kvactor.types import NO_PAGE, Group, Item, Kind, Prompt, Range, Retention

__version__ = "0.1.0"

__all__ = [
    "NO_PAGE",
    "Attached",
    "Attachment",
    "Blocks",
    "Client",
    "Daemon",
    "Extend",
    "Group",
    "Item",
    "Kind",
    "KvactorError",
    "Lookup",
    "Match",
    "Memory",
    "NoDaemonError",
    "Prompt",
    "ProtocolError",
    "Range",
    "RefusedError",
    "Reserve",
    "Retention",
    "Session",
    "UnreachableError",
    "Write",
    "attach",
    "connect",
    "copy",
    "find",
    "fingerprint",
    "spawn",
]
