"""The side of the connector that runs in vLLM's scheduler and talks to the daemon."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.logger import init_logger

from kvactor.client import Extend, Match, Pages, Reserve, Session, Write
from kvactor.errors import RefusedError
from kvactor.link import Link
from kvactor.types import NO_PAGE, Kind
from kvactor.vllm.adapters import Adapters
from kvactor.vllm.metadata import Copy, Load, StepReport, StepWork
from kvactor.vllm.metrics import GAUGE, TransferStats
from kvactor.vllm.once import warn_once
from kvactor.vllm.requests import Tracked

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

    from kvactor.vllm.geometry import CacheGroup

logger = init_logger(f"vllm.{__name__}")

NULL_BLOCK = 0
"""vLLM's id of the block that stands where a window has passed."""

FETCH_SECONDS = 10.0
"""How long a request waits for the daemon's store before it is computed."""

Table = tuple[list[int], ...]
"""The blocks of a request in each group of vLLM."""


@dataclass
class Want:
    """Blocks [first, last) of a request that this step computes and the daemon lacks.

    states: by recurrent group of vLLM, the block that has the state after block last - 1.
    """

    tracked: Tracked
    table: Table
    first: int
    last: int
    keeps_open: bool
    states: dict[int, int]


@dataclass
class Batch:
    """A want whose pages a worker is writing."""

    session: Session
    want: Want


class SchedulerSide:
    """Asks the daemon for prefixes, and for pages for what a step computes.

    Every exchange that fails ends the session and is answered as if the daemon had
    nothing, so requests are computed; `Link` finds the daemon again.
    """

    def __init__(
        self, groups: list[CacheGroup], link: Link, ranks: int, loads: bool, saves: bool
    ) -> None:
        self._groups = groups
        self._block = groups[0].group.block_tokens
        self._link = link
        self._windows = [g for g in groups if g.group.kind is Kind.WINDOW]
        self._states = {g.index for g in groups if g.group.kind is Kind.STATE}
        self._ranks = ranks
        self._may_load = loads
        self._may_save = saves
        self._adapters = Adapters()
        self._requests: dict[str, Tracked] = {}
        self._gone: dict[str, Tracked] = {}  # finished while a worker loads
        self._loads: list[Load] = []
        self._batches: dict[int, Batch] = {}
        self._next_batch = 0
        self._fetching = False
        self._epoch = ""
        self.stats = TransferStats()

    def match(self, request: Request, computed: int) -> int | None:
        """Tokens that the daemon has beyond the computed ones. Their pages are claimed.

        None: the daemon is fetching them; ask again in another step.
        """
        tracked = self._track(request)
        session = self._link.session
        if tracked is None or session is None or request.skip_reading_prefix_cache:
            return 0
        tracked.follow(session.generation)
        self._let_go(tracked)
        if tracked.writing:
            return 0  # preempted, and a step that computed it is still under way
        self._end_write(tracked)
        tracked.refresh(self._adapters)
        if tracked.failed or tracked.stale:
            return 0
        with self._link.guard(session, self.stats):
            return self._match(session, tracked, computed)
        return 0

    def allocated(self, request: Request, blocks: KVCacheBlocks, tokens: int) -> None:
        """vLLM has blocks for the tokens that match promised, or loads none of them."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or tracked.loading:
            return
        if tokens == 0:
            self._let_go(tracked)
            return
        tracked.loading = True
        first, last = tracked.computed // self._block, (tracked.computed + tokens) // self._block
        copies = self._load_copies(tracked, blocks.get_block_ids(), first, last)
        self._loads.append(Load(request.request_id, tracked.generation, copies))
        self.stats.add("matched_tokens", tokens)

    def step(self, output: SchedulerOutput) -> StepWork:
        """What the workers copy in this step."""
        session = self._link.session
        loads, self._loads = self._loads, []
        work = StepWork(loads=loads, idle=output.total_num_scheduled_tokens == 0)
        fetching, self._fetching = self._fetching, False
        if work.idle and fetching:
            time.sleep(0.001)  # or the scheduler would spin until the store has answered
        if session is None:
            return work
        work.generation, work.attachment = session.generation, session.attachment
        with self._link.guard(session, self.stats):
            if self._may_save:
                self._reserve(session, self._wants(session, output), work)
            session.flush()
        return work

    def done(self, output: KVConnectorOutput) -> None:
        """Loads and saves that the workers have done."""
        failed = output.failed_recving or set()
        for name in output.finished_recving or ():
            present = self._requests.get(name)
            tracked = self._gone.pop(name, None) or present
            if tracked is None:
                continue
            tracked.loading = False
            self._let_go(tracked)
            if name in failed:
                tracked.failed = True
                if present is not None:  # the same request, since a reset
                    present.failed = True
                self._link.lost(tracked.generation, "a load failed")
        report = output.kv_connector_worker_meta
        if isinstance(report, StepReport):
            for number in set(report.written) | report.failed:
                whole = report.written.get(number) == self._ranks
                self._written(number, whole and number not in report.failed)
        session = self._link.session
        if session is not None:
            with self._link.guard(session, self.stats):
                session.flush()

    def finished(self, request: Request) -> None:
        """The request is over; what was computed of it stays with the daemon."""
        tracked = self._requests.pop(request.request_id, None)
        if tracked is None:
            return
        tracked.finished = True
        if not tracked.writing:
            self._end_write(tracked)
        if tracked.loading:
            self._gone[request.request_id] = tracked
        else:
            self._let_go(tracked)

    def reset(self) -> bool:
        """Makes all blocks of before unreachable for this vLLM, and returns True.

        A store keeps what it has, and other processes may have changed no weights. So
        this process goes on under an adapter's name of its own.
        """
        self._epoch = uuid.uuid4().hex
        for tracked in list(self._requests.values()):
            # What a worker copies for the request of before is released when it has ended.
            self.finished(tracked.request)
            again = self._track(tracked.request)
            if again is not None:
                again.failed = tracked.failed
        session = self._link.session
        if session is not None:
            with self._link.guard(session, self.stats):
                session.reset()
        return True

    def collect(self) -> TransferStats | None:
        """The counts since the last call."""
        self.stats.data[GAUGE] = int(self._link.session is not None)
        lost = self._link.take_lost()
        if lost:
            self.stats.add("lost_sessions", lost)
        return self.stats.take()

    def close(self) -> None:
        """Ends the session."""
        self._link.close()

    # Prefixes.

    def _track(self, request: Request) -> Tracked | None:
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            tracked = Tracked.of(request, self._adapters)
            if tracked is not None:
                tracked.rename(self._epoch)
                self._requests[request.request_id] = tracked
        return tracked

    def _match(self, session: Session, tracked: Tracked, computed: int) -> int | None:
        known = len(tracked.request.all_token_ids)
        late = tracked.since > 0 and time.monotonic() - tracked.since > FETCH_SECONDS
        found: Match = session.match(tracked.prompt(known), fetch=not late)
        if found.fetching:
            tracked.since = tracked.since or time.monotonic()
            self._fetching = True
            return None
        self.stats.add("matches", 1)
        tracked.since = 0.0
        tracked.stored = tracked.tried = found.tokens // self._block
        tracked.match, tracked.computed = found, computed
        if found.tokens > computed and self._may_load:
            return found.tokens - computed
        self._let_go(tracked)
        return 0

    def _let_go(self, tracked: Tracked) -> None:
        match, tracked.match = tracked.match, None
        if match is not None:
            self._release(tracked, match.handle)

    def _load_copies(self, tracked: Tracked, table: Table, first: int, last: int) -> list[Copy]:
        """Pages of blocks [first, last) and vLLM's blocks for them.

        If a block lacks a page, there are none, and the worker says that the load failed.
        """
        session = self._link.session
        if session is None or tracked.match is None:
            return []
        if self._states and last * self._block != tracked.match.tokens:
            return []  # the states are those after the whole match
        copies = []
        for pool, pages in enumerate(tracked.match.pages):
            for i in session.attachment.groups_of(pool):
                blocks = table[self._groups[i].index]
                if self._groups[i].index in self._states:
                    if blocks[last - 1] == NULL_BLOCK or pages[0] == NO_PAGE:
                        return []
                    copies.append(Copy(i, pool, [blocks[last - 1]], [int(pages[0])]))
                    continue
                wanted = [b for b in range(first, last) if blocks[b] != NULL_BLOCK]
                if any(pages[b] == NO_PAGE for b in wanted):
                    return []
                if wanted:
                    found = [int(pages[b]) for b in wanted]
                    copies.append(Copy(i, pool, [blocks[b] for b in wanted], found))
        return copies

    # What is computed.

    def _wants(self, session: Session, output: SchedulerOutput) -> list[Want]:
        """The blocks that are whole after this step and that the daemon lacks."""
        wants = []
        state = output.kv_connector_block_state
        for name, computed in _scheduled(output):
            tracked = self._requests.get(name)
            if tracked is None or state is None:
                continue
            tracked.follow(session.generation)
            known = len(tracked.request.all_token_ids)  # without drafts
            after = min(computed + output.num_scheduled_tokens[name], known)
            last = after // self._block
            states: dict[int, int] = {}
            if self._states:
                last, states = self._boundary(state.boundary_state_offloads.get(name, ()), last)
            if tracked.writing or last <= max(tracked.stored, tracked.tried):
                continue
            tracked.refresh(self._adapters)
            if tracked.stale:
                continue
            table = state.get_block_ids(name)
            if table is not None:
                plain = tracked.plain_after(last * self._block)  # an extension has no items
                # With states a write ends where vLLM has them, and the next one begins anew.
                chunk = after < known and plain and tracked.namespace.retention is None
                chunk = chunk and not self._states
                wants.append(Want(tracked, table, tracked.stored, last, chunk, states))
        return wants

    def _boundary(
        self, offers: Sequence[tuple[int, int, int]], last: int
    ) -> tuple[int, dict[int, int]]:
        """The last block of a request behind which vLLM has the states of all recurrent groups.

        offers has a group, its block with the state, and the tokens before that state. Returns
        the number of blocks up to there, at most last, and the block of each group; 0 and none
        if there are no such states.
        """
        found: dict[int, dict[int, int]] = {}
        for group, block, tokens in offers:
            if block != NULL_BLOCK and tokens % self._block == 0 and tokens <= last * self._block:
                found.setdefault(tokens // self._block, {})[group] = block
        whole = [at for at, blocks in found.items() if blocks.keys() >= self._states]
        return (max(whole), found[max(whole)]) if whole else (0, {})

    def _reserve(self, session: Session, wants: list[Want], work: StepWork) -> None:
        if not wants:
            return
        for want in wants:
            if not want.tracked.plain_after(want.first * self._block):
                self._end_write(want.tracked)  # a streaming request has got an item
        new = [w for w in wants if not w.tracked.write]
        more = [w for w in wants if w.tracked.write]
        answers = session.ask(
            reserves=[Reserve(w.tracked.prompt(w.last * self._block)) for w in new],
            extends=[
                Extend(
                    w.tracked.write,
                    w.tracked.tokens(w.first * self._block, w.last * self._block),
                )
                for w in more
            ],
        )
        for want, answer in zip(new, answers.reserves, strict=True):
            done = self._take_pages(session, want, answer, work)
            if done or not self._windows or self._states:
                continue
            # Blocks that the daemon lacks have left their window here, or there are too few
            # pages: those for the last window alone are fewer.
            again = Reserve(want.tracked.prompt(want.last * self._block), tail=True)
            (answer,) = session.ask(reserves=[again]).reserves
            self._take_pages(session, want, answer, work)
        for want, pages in zip(more, answers.extends, strict=True):
            handle = want.tracked.write
            write = pages if isinstance(pages, RefusedError) else Write(handle, 0, pages)
            self._take_pages(session, want, write, work)
        refused = sum(w.last - w.tracked.stored for w in wants)
        if refused:
            self.stats.add("refused_blocks", refused)

    def _take_pages(
        self, session: Session, want: Want, answer: Write | RefusedError, work: StepWork
    ) -> bool:
        """Plans the copies to the pages of an answer. False if the blocks stay unsaved."""
        tracked = want.tracked
        tracked.tried = want.last
        if isinstance(answer, RefusedError):
            if answer.code == "out_of_pages":
                logger.debug("kvactor: no pages: %s", answer)
            else:
                warn_once(logger, f"blocks are not saved: {answer}")
            self._end_write(tracked)
            return False
        if answer.handle == 0:
            tracked.stored = want.last
            return True
        tracked.write = answer.handle
        copies = self._save_copies(session, want, answer.pages)
        if copies is None:
            self._end_write(tracked)  # a block that is to be written has left its window
            return False
        tracked.stored = want.last
        tracked.writing = True
        self._next_batch += 1
        self._batches[self._next_batch] = Batch(session, want)
        work.saves[self._next_batch] = copies
        return True

    def _save_copies(self, session: Session, want: Want, pages: Pages) -> list[Copy] | None:
        """Copies to the pages, or None if vLLM lacks what belongs in one of them."""
        copies = []
        for pool, table in enumerate(pages):
            start = want.last - len(table)  # 0, or the first block that was added
            wanted = [b for b in range(start, want.last) if table[b - start] != NO_PAGE]
            for i in session.attachment.groups_of(pool):
                index = self._groups[i].index
                if index in self._states:
                    copies.append(Copy(i, pool, [want.states[index]], [int(table[0])]))
                    continue
                blocks = [want.table[index][b] for b in wanted]
                if NULL_BLOCK in blocks:
                    return None
                if blocks:
                    found = [int(table[b - start]) for b in wanted]
                    copies.append(Copy(i, pool, blocks, found))
        return copies

    def _written(self, number: int, whole: bool) -> None:
        """A batch is written by all ranks, or will never be."""
        batch = self._batches.pop(number, None)
        if batch is None:
            return
        tracked = batch.want.tracked
        if batch.session.generation != tracked.generation:
            return
        tracked.writing = False
        tracked.refresh(self._adapters)
        whole = whole and not tracked.stale
        if whole:
            batch.session.written(tracked.write, batch.want.last * self._block)
        if not whole or not batch.want.keeps_open or tracked.finished:
            self._end_write(tracked)

    def _end_write(self, tracked: Tracked) -> None:
        handle, tracked.write = tracked.write, 0
        self._release(tracked, handle)

    def _release(self, tracked: Tracked, handle: int) -> None:
        session = self._link.session
        if session is not None and session.generation == tracked.generation:
            session.release(handle)


def _scheduled(output: SchedulerOutput) -> list[tuple[str, int]]:
    """The requests of a step, each with the tokens that were computed before."""
    found = [(new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs]
    cached = output.scheduled_cached_reqs
    found += zip(cached.req_ids, cached.num_computed_tokens, strict=True)
    return found
