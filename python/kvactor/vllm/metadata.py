"""What the two sides of the connector tell each other in a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvactor.mapping import Attachment


@dataclass
class Copy:
    """Blocks of a group of vLLM, and pages of a pool that they are copied from or to.

    It is about the layers of the group that lie in the pool.
    """

    group: int
    pool: int
    blocks: list[int]
    pages: list[int]


@dataclass
class Load:
    """A prefix that a waiting request has in the daemon."""

    request: str
    generation: int
    copies: list[Copy]


@dataclass
class StepWork(KVConnectorMetadata):
    """From the scheduler to the workers: what to copy in a step.

    generation counts the sessions with the daemon; pages are those of the session that
    attachment describes. saves maps the number of a batch of reserved pages to what is
    copied to it. idle: the step computes nothing, so waiting for a load delays nobody.
    """

    generation: int = 0
    attachment: Attachment | None = None
    loads: list[Load] = field(default_factory=list)
    saves: dict[int, list[Copy]] = field(default_factory=dict)
    idle: bool = False


@dataclass
class StepReport(KVConnectorWorkerMetadata):
    """From the workers to the scheduler: the saves that are done.

    written maps the number of a batch to how many ranks have written all of it; a batch
    that is in failed has lost what some rank should have written.
    """

    written: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> StepReport:
        """Adds the report of another rank."""
        assert isinstance(other, StepReport)
        written = dict(self.written)
        for batch, ranks in other.written.items():
            written[batch] = written.get(batch, 0) + ranks
        return StepReport(written, self.failed | other.failed)
