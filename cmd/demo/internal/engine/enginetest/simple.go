// Package enginetest has the simplest engine that the demo's commands can run
// on: whole blocks, full attention, least recently used, no host memory, a lock
// around everything. Tests compare and exercise the commands with it.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Simple is the engine. All pools keep the same pages.
type Simple struct {
	engine.Engine // nil: what is not below panics
	setup         engine.Setup

	mu     sync.Mutex
	tokens int
	pages  int
	free   []messages.PageID
	stored map[host.Chain]*block // by the chain of the last token
	held   map[messages.PageID]int
	runs   map[messages.SequenceID]*run
	last   messages.SequenceID
	use    int
	stats  inspect.Stats
}

type block struct {
	page  messages.PageID
	use   int
	depth int
}

type run struct {
	tokens   []messages.Token
	links    []host.Chain
	table    []messages.PageID
	computed int
}

// Spawn starts a Simple.
func Spawn(s engine.Setup) (engine.Engine, func(), error) {
	e := &Simple{
		setup: s, tokens: s.Cache.TokensPerBlock, pages: s.Pages[0].Primary,
		stored: map[host.Chain]*block{}, held: map[messages.PageID]int{}, runs: map[messages.SequenceID]*run{},
	}
	for i, p := range s.Pools {
		e.pages = min(e.pages, s.Pages[i].Primary)
		_, err := s.Device.CreatePool(gpu.PoolSpec{
			Name: p.Name, PageBytes: p.PageBytes(), DevicePages: s.Pages[i].Primary,
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for i := e.pages - 1; i >= 0; i-- {
		e.free = append(e.free, messages.PageID(i))
	}
	return e, func() {}, nil
}

func (e *Simple) links(tokens []messages.Token) []host.Chain {
	return host.Chains(messages.Prefix{Tokens: tokens})
}

// match gives the pages of the leading stored blocks, at most P−1 tokens.
func (e *Simple) match(links []host.Chain) []messages.PageID {
	var pages []messages.PageID
	for end := e.tokens; end < len(links); end += e.tokens {
		b := e.stored[links[end-1]]
		if b == nil {
			break
		}
		pages = append(pages, b.page)
	}
	return pages
}

// available counts the pages that could be taken.
func (e *Simple) available() int { return e.pages - len(e.held) }

func (e *Simple) hold(p messages.PageID) { e.held[p]++ }

func (e *Simple) releasePage(p messages.PageID) {
	if e.held[p]--; e.held[p] > 0 {
		return
	}
	delete(e.held, p)
	for _, b := range e.stored {
		if b.page == p {
			return
		}
	}
	e.free = append(e.free, p)
}

// take takes a page that is known to be available.
func (e *Simple) take() messages.PageID {
	if n := len(e.free); n > 0 {
		p := e.free[n-1]
		e.free = e.free[:n-1]
		e.hold(p)
		return p
	}
	var victim host.Chain
	var best *block
	for key, b := range e.stored {
		if e.held[b.page] > 0 {
			continue
		}
		if best == nil || b.use < best.use || b.use == best.use && b.depth > best.depth {
			victim, best = key, b
		}
	}
	delete(e.stored, victim)
	e.stats.Pools[0].Evicted++
	e.hold(best.page)
	return best.page
}

func (e *Simple) counts() {
	if e.stats.Pools == nil {
		for _, p := range e.setup.Pools {
			e.stats.Pools = append(e.stats.Pools, inspect.PoolStats{Name: p.Name})
		}
	}
}

// AdmitBatch admits one after the other.
func (e *Simple) AdmitBatch(_ context.Context, rs []messages.AdmitRequest) ([]messages.Admitted, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts()
	out := make([]messages.Admitted, len(rs))
	for i, r := range rs {
		out[i] = e.admit(r)
	}
	return out, nil
}

// Admit admits one request.
func (e *Simple) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	out, err := e.AdmitBatch(ctx, []messages.AdmitRequest{r})
	return out[0], errors.Join(err, out[0].Err)
}

func (e *Simple) admit(r messages.AdmitRequest) messages.Admitted {
	q := &run{tokens: append([]messages.Token(nil), r.Tokens...), links: e.links(r.Tokens)}
	q.table = e.match(q.links)
	need := (len(q.tokens)+e.tokens-1)/e.tokens - len(q.table)
	for _, p := range q.table {
		e.hold(p)
	}
	if have := e.available(); need > have {
		for _, p := range q.table {
			e.releasePage(p)
		}
		return messages.Admitted{Err: refusals.OutOfPages(e.setup.Pools[0].Name, need, have)}
	}
	q.computed = len(q.table) * e.tokens
	reused := q.computed
	for range need {
		q.table = append(q.table, e.take())
	}
	e.last++
	e.runs[e.last] = q
	e.stats.Requests++
	e.stats.PromptTokens += int64(len(q.tokens))
	e.stats.ReusedTokens += int64(reused)
	return messages.Admitted{Sequence: e.last, ReusedTokens: reused, Tables: e.tables(q)}
}

func (e *Simple) tables(q *run) messages.Tables {
	var t messages.Tables
	for range e.setup.Pools {
		t = append(t, [][]messages.PageID{append([]messages.PageID(nil), q.table...)})
	}
	return t
}

func (e *Simple) commit(q *run, computed int) {
	for end := (q.computed/e.tokens + 1) * e.tokens; end <= computed; end += e.tokens {
		if e.stored[q.links[end-1]] == nil {
			e.stored[q.links[end-1]] = &block{page: q.table[end/e.tokens-1], depth: end}
		}
	}
	q.computed = computed
}

// Commit commits.
func (e *Simple) Commit(_ context.Context, steps []messages.CommitStep) ([]messages.StepResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]messages.StepResult, len(steps))
	for i, s := range steps {
		q := e.runs[s.Sequence]
		if q == nil || s.Computed < q.computed || s.Computed > len(q.tokens) {
			return nil, fmt.Errorf("commit of %+v", s)
		}
		e.commit(q, s.Computed)
		out[i].NewPages = make([][]messages.PageID, len(e.setup.Pools))
	}
	return out, nil
}

// Append appends, then commits.
func (e *Simple) Append(_ context.Context, steps []messages.AppendStep) ([]messages.StepResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]messages.StepResult, len(steps))
	for i, s := range steps {
		q := e.runs[s.Sequence]
		if q == nil || s.Computed < q.computed || s.Computed > len(q.tokens) {
			return nil, fmt.Errorf("append of %+v", s)
		}
		need := (len(q.tokens)+len(s.Tokens)+e.tokens-1)/e.tokens - len(q.table)
		if have := e.available(); need > have {
			out[i].Err = refusals.OutOfPages(e.setup.Pools[0].Name, need, have)
			continue
		}
		var fresh []messages.PageID
		for range need {
			fresh = append(fresh, e.take())
		}
		for range e.setup.Pools {
			out[i].NewPages = append(out[i].NewPages, fresh)
		}
		q.table = append(q.table, fresh...)
		q.tokens = append(q.tokens, s.Tokens...)
		q.links = e.links(q.tokens)
		e.commit(q, s.Computed)
	}
	return out, nil
}

// Release releases.
func (e *Simple) Release(_ context.Context, steps []messages.ReleaseStep) ([]messages.StepResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range steps {
		q := e.runs[s.Sequence]
		if q == nil {
			return nil, fmt.Errorf("release of %+v", s)
		}
		if s.Computed > q.computed {
			e.commit(q, s.Computed)
		}
		e.use++
		for end := e.tokens; end <= q.computed; end += e.tokens {
			if b := e.stored[q.links[end-1]]; b != nil {
				b.use = e.use
			}
		}
		for i := len(q.table) - 1; i >= 0; i-- {
			e.releasePage(q.table[i])
		}
		delete(e.runs, s.Sequence)
	}
	return make([]messages.StepResult, len(steps)), nil
}

// TablesOf gives the tables of a sequence.
func (e *Simple) TablesOf(_ context.Context, s messages.SequenceID) (messages.Tables, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tables(e.runs[s]), nil
}

// Lookup looks up.
func (e *Simple) Lookup(_ context.Context, p messages.Prefix) (messages.Found, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.match(e.links(p.Tokens))) * e.tokens
	return messages.Found{MatchedTokens: n, PrimaryTokens: n}, nil
}

// Prefetch uses what is stored of a prefix. There is no host memory that it could come from.
func (e *Simple) Prefetch(_ context.Context, p messages.Prefix) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.use++
	links := e.links(p.Tokens)
	for k := range e.match(links) {
		e.stored[links[(k+1)*e.tokens-1]].use = e.use
	}
	return 0, nil
}

// Stats gives the counts.
func (e *Simple) Stats(context.Context) (inspect.Stats, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts()
	out := e.stats
	out.Pools = append([]inspect.PoolStats(nil), e.stats.Pools...)
	for i := range out.Pools {
		used, free := len(e.held), len(e.free)
		out.Pools[i].Primary = inspect.TierPages{Total: e.pages, Used: used, Free: free, Cached: e.pages - used - free}
	}
	return out, nil
}

// Contents is not kept: it is empty.
func (e *Simple) Contents(context.Context) ([]protocol.Content, error) { return nil, nil }

// Check finds nothing.
func (e *Simple) Check(context.Context) error { return nil }

// Close counts what is held.
func (e *Simple) Close(context.Context) (int, error) { return len(e.held), nil }
