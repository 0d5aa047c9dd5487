package script

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// plain is the least engine that a script can talk to: it reuses whole blocks
// and evicts nothing. It is strict about what its host must not do, so that the
// tests see what this package sends. It holds no rule of the cache that the
// answers are compared for: those come from the oracle.
type plain struct {
	setup     Setup
	pools     []messages.PoolInfo
	memory    *memory
	refs      [][]int // [pool][page]: sequences and beams; the tree counts as one
	nodes     []protocol.Content
	running   map[messages.SequenceID]*plainSequence
	last      messages.SequenceID
	pins      int
	calls     []string // those that change something
	lost      map[messages.SequenceID]bool
	closed    bool
	failures  int
	panicked  []string
	selectors []messages.Selector
	retention []*messages.Retention
	// releasedAfter are the tickets of all releases, in order.
	releasedAfter []messages.Ticket
}

type plainSequence struct {
	request  messages.AdmitRequest
	computed int
	beams    [][]messages.Token
	tables   messages.Tables
}

// memory is a device that does everything at once.
type memory struct {
	pages  map[gpu.Slot][]byte
	sizes  []int64
	counts []int
	seq    uint64
	lose   int // copies that do nothing
}

func (m *memory) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	allowed := make(map[gpu.Slot]bool)
	for _, a := range append(slices.Clone(k.Reads), k.Writes...) {
		allowed[a.Slot] = true
	}
	k.Run(func(slot gpu.Slot) []byte {
		if !allowed[slot] {
			panic(fmt.Sprintf("kernel touches %v, which it has not declared", slot))
		}
		return m.bytes(slot)
	})
	m.seq++
	return gpu.Ticket{Stream: s, Seq: m.seq}, nil
}

func (m *memory) bytes(slot gpu.Slot) []byte {
	if int(slot.Page) >= m.counts[slot.Pool] {
		return nil
	}
	if m.pages[slot] == nil {
		m.pages[slot] = make([]byte, m.sizes[slot.Pool])
	}
	return m.pages[slot]
}

// openPlain opens a plain engine; engines gets it.
func openPlain(engines *[]*plain) OpenFunc {
	return func(s Setup) (*Rig, error) {
		e := &plain{
			setup: s, memory: &memory{pages: make(map[gpu.Slot][]byte)},
			running: make(map[messages.SequenceID]*plainSequence), lost: make(map[messages.SequenceID]bool),
		}
		rig := &Rig{
			Engine: e, Launcher: e.memory, Compute: 1, Bytes: e.memory.bytes,
			FailCopies: func(_ gpu.Direction, n int) error { e.failures += n; return nil },
			PanicActor: func(actor string) error { e.panicked = append(e.panicked, actor); return nil },
			Hazards:    func() []string { return nil },
			Drain:      func() {},
			Close:      func() error { return nil },
		}
		for i, p := range s.Pools {
			count := 16
			if s.Pages != nil {
				count = min(1<<20, s.Pages[i].Primary)
			}
			e.pools = append(e.pools, messages.PoolInfo{
				ID: p.ID, Name: p.Name, Window: p.Window, KVHeads: p.KVHeads, Layers: p.Layers,
				PageBytes: p.PageBytes(), PrimaryPages: count,
			})
			e.refs = append(e.refs, make([]int, count))
			e.memory.sizes = append(e.memory.sizes, p.PageBytes())
			e.memory.counts = append(e.memory.counts, count)
			rig.Pools = append(rig.Pools, gpu.Pool(i))
		}
		*engines = append(*engines, e)
		return rig, nil
	}
}

func (e *plain) tpb() int { return e.setup.Cache.TokensPerBlock }

func (e *plain) call(format string, args ...any) {
	e.calls = append(e.calls, fmt.Sprintf(format, args...))
}

func (e *plain) Validate(r messages.AdmitRequest) error {
	switch {
	case r.ChunkTokens%e.tpb() != 0:
		return refusals.New(messages.ErrBadRequest, "chunk_tokens %d is no multiple of %d", r.ChunkTokens,
			e.tpb())
	case r.BeamWidth > 64:
		return refusals.New(messages.ErrBadRequest, "beam_width %d", r.BeamWidth)
	case r.BeamWidth > 1 && r.ChunkTokens > 0:
		return refusals.New(messages.ErrNotSupported, "beams and chunks exclude each other")
	}
	for i, m := range r.Multimodal {
		if m.Length < 1 || m.Start < 0 || m.Start+m.Length > len(r.Tokens) {
			panic("the script let an item pass that it should not")
		}
		for _, o := range r.Multimodal[:i] {
			if m.Start < o.Start+o.Length && o.Start < m.Start+m.Length {
				return refusals.New(messages.ErrBadRequest, "items overlap")
			}
		}
	}
	if r.Retention != nil {
		e.retention = append(e.retention, r.Retention)
	}
	return nil
}

// take gives n pages of a pool, or none.
func (e *plain) take(pool, n int) ([]messages.PageID, error) {
	var out []messages.PageID
	for page, refs := range e.refs[pool] {
		if refs == 0 && len(out) < n {
			out = append(out, messages.PageID(page))
		}
	}
	if len(out) < n {
		return nil, refusals.OutOfPages(e.pools[pool].Name, n, len(out))
	}
	for _, p := range out {
		e.refs[pool][p] = 1
	}
	return out, nil
}

// find gives the stored blocks of a prompt, at most limit tokens.
func (e *plain) find(p messages.Prefix, limit int) []int {
	var out []int
	parent := -1
	for at := 0; at+e.tpb() <= limit; at += e.tpb() {
		i := slices.IndexFunc(e.nodes, func(c protocol.Content) bool {
			return c.Parent == parent && c.Namespace == p.Namespace &&
				slices.Equal(c.Tokens, p.Tokens[at:at+e.tpb()])
		})
		if i < 0 {
			break
		}
		out, parent = append(out, i), i
	}
	return out
}

func (e *plain) Admit(_ context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	if len(r.Tokens) > e.setup.Model.MaxSeqLen {
		panic("the script let a prompt pass that is too long")
	}
	blocks := (len(r.Tokens) + e.tpb() - 1) / e.tpb()
	found := e.find(messages.Prefix{Namespace: r.Namespace, Tokens: r.Tokens}, len(r.Tokens)-1)
	s := &plainSequence{request: r, computed: len(found) * e.tpb(),
		beams: slices.Repeat([][]messages.Token{r.Tokens}, max(1, r.BeamWidth))}
	a := messages.Admitted{ReusedTokens: s.computed, MissReason: messages.ReasonCold}
	for pool := range e.pools {
		var free int
		for _, refs := range e.refs[pool] {
			if refs == 0 {
				free++
			}
		}
		if free < blocks-len(found) {
			return a, refusals.OutOfPages(e.pools[pool].Name, blocks-len(found), free)
		}
	}
	for pool := range e.pools {
		var table []messages.PageID
		for _, i := range found {
			page, _, _ := e.nodes[i].Pages[pool].Page()
			e.refs[pool][page]++
			table = append(table, page)
		}
		pages, _ := e.take(pool, blocks-len(found))
		table = append(table, pages...)
		for range len(s.beams) - 1 {
			for _, page := range table {
				e.refs[pool][page]++
			}
		}
		var tables [][]messages.PageID
		for range s.beams {
			tables = append(tables, slices.Clone(table))
		}
		s.tables = append(s.tables, tables)
		a.Reuse = append(a.Reuse, messages.PoolReuse{Full: len(found)})
	}
	e.last++
	a.Sequence = e.last
	e.running[e.last] = s
	e.call("admit %d", e.last)
	return a, nil
}

func (e *plain) AdmitBatch(
	ctx context.Context, rs []messages.AdmitRequest,
) ([]messages.Admitted, error) {
	var out []messages.Admitted
	for _, r := range rs {
		a, err := e.Admit(ctx, r)
		a.Err = err
		out = append(out, a)
	}
	return out, nil
}

func (e *plain) get(id messages.SequenceID) (*plainSequence, error) {
	if e.lost[id] {
		return nil, refusals.New(messages.ErrSequenceLost, "its pages are gone")
	}
	s := e.running[id]
	if s == nil {
		panic(fmt.Sprintf("the script used sequence %d, which is not running", id))
	}
	return s, nil
}

func (e *plain) Commit(
	_ context.Context, steps []messages.CommitStep,
) ([]messages.StepResult, error) {
	var out []messages.StepResult
	for _, step := range steps {
		out = append(out, messages.StepResult{Sequence: step.Sequence, Err: e.commit(step)})
	}
	return out, nil
}

func (e *plain) commit(step messages.CommitStep) error {
	s, err := e.get(step.Sequence)
	if err != nil {
		return err
	}
	n, prompt := step.Computed, len(s.request.Tokens)
	if n < s.computed || n > len(s.beams[0]) || n < prompt && n%e.tpb() != 0 ||
		s.request.ChunkTokens > 0 && s.computed < prompt && n > s.computed+s.request.ChunkTokens {
		return refusals.New(messages.ErrBadRequest, "commit to %d of %d", n, s.computed)
	}
	e.call("commit %d %d", step.Sequence, n)
	s.computed = n
	if len(s.beams) > 1 {
		n = min(n, prompt)
	}
	found := e.find(messages.Prefix{Namespace: s.request.Namespace, Tokens: s.beams[0]}, n)
	for block := len(found); block < n/e.tpb(); block++ {
		node := protocol.Content{Parent: -1, Namespace: s.request.Namespace, Depth: block,
			Tokens: s.beams[0][block*e.tpb() : (block+1)*e.tpb()]}
		if block > 0 {
			node.Parent = found[block-1]
		}
		node.Covers = e.covers(s, block)
		for pool := range e.pools {
			page := s.tables[pool][0][block]
			node.Pages = append(node.Pages, protocol.OnDevice(page))
			e.refs[pool][page]++
		}
		found = append(found, len(e.nodes))
		e.nodes = append(e.nodes, node)
	}
	return nil
}

func (e *plain) covers(s *plainSequence, block int) []messages.Cover {
	var out []messages.Cover
	for i := range e.tpb() {
		at, cover := block*e.tpb()+i, messages.Cover{}
		for _, m := range s.request.Multimodal {
			if at >= m.Start && at < m.Start+m.Length {
				cover = messages.Cover{Covered: true, Hash: m.Hash, Position: at - m.Start}
			}
		}
		out = append(out, cover)
	}
	return out
}

func (e *plain) Lookup(_ context.Context, p messages.Prefix) (messages.Found, error) {
	n := len(e.find(p, len(p.Tokens)-1)) * e.tpb()
	return messages.Found{MatchedTokens: n, PrimaryTokens: n}, nil
}

func (e *plain) Pin(_ context.Context, p messages.Prefix) (messages.Pinned, error) {
	e.pins++
	e.call("pin")
	return messages.Pinned{Pin: messages.PinID(e.pins),
		Tokens: len(e.find(p, len(p.Tokens))) * e.tpb()}, nil
}

func (e *plain) Unpin(context.Context, messages.PinID) error { e.call("unpin"); return nil }

func (e *plain) Invalidate(_ context.Context, s messages.Selector) (int, error) {
	e.call("invalidate")
	e.selectors = append(e.selectors, s)
	return 0, nil
}

func (e *plain) Prefetch(context.Context, messages.Prefix) (int, error) {
	e.call("prefetch")
	return 0, nil
}

func (e *plain) Reset(context.Context) error        { e.call("reset"); return nil }
func (e *plain) ResetRunning(context.Context) error { e.call("reset running"); return nil }

func (e *plain) SetWeights(_ context.Context, epoch string) error {
	e.call("weights %s", epoch)
	return nil
}

func (e *plain) Rebalance(
	_ context.Context, fractions map[string]float64,
) (messages.Rebalanced, error) {
	e.call("rebalance %v", fractions)
	moved := make([][]messages.PageMove, len(e.pools))
	moved[0] = []messages.PageMove{{Old: 9, New: 1}}
	return messages.Rebalanced{Pools: e.pools, Moved: moved}, nil
}

func (e *plain) Stats(context.Context) (inspect.Stats, error) {
	s := inspect.Stats{Requests: int64(e.last)}
	for i, p := range e.pools {
		s.Pools = append(s.Pools, inspect.PoolStats{Name: p.Name,
			Primary: inspect.TierPages{Total: p.PrimaryPages}})
		s.Pools[i].PoolCounters.AllocatedPages = int64(i)
	}
	return s, nil
}

func (e *plain) Events(context.Context) (kvevents.EventBatch, error) {
	return kvevents.EventBatch{Lost: 2, Events: []kvevents.Event{
		{ID: 2, Type: kvevents.EventCreated, PrimaryPages: 3},
		{ID: 3, Type: kvevents.EventStored,
			Blocks: []kvevents.StoredBlock{{Hash: kvevents.Hash{1}, Tokens: []messages.Token{7},
				Priority: 35}}},
		{ID: 4, Type: kvevents.EventStored, HasParent: true, Parent: kvevents.Hash{1},
			Blocks: []kvevents.StoredBlock{{Hash: kvevents.Hash{2}, Tokens: []messages.Token{8},
				Tier: messages.Secondary}}},
		{ID: 5, Type: kvevents.EventUpdated, Hash: kvevents.Hash{1}, TierChanged: true,
			NewTier: messages.Secondary},
		{ID: 6, Type: kvevents.EventUpdated, Hash: kvevents.Hash{1}, OldPriority: 35, NewPriority: 0},
		{ID: 7, Type: kvevents.EventRemoved, Hashes: []kvevents.Hash{{1}, {2}}},
		{ID: 8, Type: kvevents.EventCleared},
	}}, nil
}

func (e *plain) Snapshot(context.Context) (kvevents.EventBatch, error) {
	return kvevents.EventBatch{Next: 9, Events: []kvevents.Event{
		{Type: kvevents.EventStored,
			Blocks: []kvevents.StoredBlock{{Hash: kvevents.Hash{15: 3}, Tokens: []messages.Token{9}}}},
	}}, nil
}

func (e *plain) Contents(context.Context) ([]protocol.Content, error) { return e.nodes, nil }

func (e *plain) Check(context.Context) error {
	if e.memory.lose < 0 {
		return errors.Join(errors.New("one thing"), errors.New("another thing"))
	}
	return nil
}

func (e *plain) Pools() []messages.PoolInfo { return e.pools }

func (e *plain) Close(context.Context) (int, error) {
	e.closed = true
	leaked := 0
	for pool := range e.pools {
		held := make(map[messages.PageID]bool)
		for _, s := range e.running {
			for _, table := range s.tables[pool] {
				for _, page := range table {
					held[page] = true
				}
			}
		}
		leaked += len(held)
	}
	return leaked, nil
}
