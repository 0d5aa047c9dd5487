package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// Limits of a host, those of a server with one large GPU.
const (
	maxRunning  = 64
	stepTokens  = 8192
	eventBuffer = 1 << 18  // events of one window
	saveBytes   = 1 << 30  // on their way to the store: nothing is dropped
	maxMemory   = 16 << 30 // bytes of an engine's pages
	maxPages    = 1 << 22  // of an engine, in each tier
)

// host is one engine with the server in front of it. It is the source of its server's
// requests. It belongs to one goroutine.
type host struct {
	shape   shape
	tokens  int // of a block
	rig     *engine.Rig
	engine  *actors.Engine
	stored  *storedEngine // nil: no store
	server  *serve.Server
	queue   []*serve.Request // by arrival
	waiting []*serve.Request // have no first token
	reply   Reply
}

// newHost starts an engine. It does not close the store, which may be nil.
func newHost(s Settings, store stores.Store) (*host, error) {
	h := &host{tokens: s.TokensPerBlock}
	var err error
	if h.shape, err = shapeOf(s.Shape); err != nil {
		return nil, err
	}
	cache, pages, err := h.memory(&s)
	if err != nil {
		return nil, err
	}
	h.rig, err = engine.Open(engine.Options{
		Model: h.shape.Model, Cache: cache, Pages: pages,
		Spawn: func(setup engine.Setup) (engine.Engine, func(),
			error) {
			return h.spawn(setup, &s, store)
		},
	})
	if err != nil {
		return nil, err
	}
	if h.stored != nil {
		h.stored.advance = h.rig.Sim.Advance
	}
	h.server, err = serve.New(serve.Config{
		Rig: h.rig, Name: "host", Model: h.shape.Costs, GPU: cost.H100(), MaxRunning: maxRunning,
		StepTokens: max(stepTokens, s.TokensPerBlock),
	}, h)
	if err != nil {
		return nil, errors.Join(err, h.kill(context.Background()))
	}
	return h, nil
}

// memory gives each pool pages for the tokens that the settings ask for.
func (h *host) memory(s *Settings) (cache windows.Config, pages []windows.PageCounts, err error) {
	cache = windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow, cache.EventBufferMaxSize = s.TokensPerBlock,
		h.shape.Windows, eventBuffer
	pools, err := windows.Pools(h.shape.Model, cache)
	if err != nil {
		return cache, nil, err
	}
	block := int64(0) // bytes of a block in all pools
	for i := range pools {
		block += pools[i].PageBytes()
		pages = append(pages, windows.PageCounts{Primary: s.Pages, Secondary: s.HostPages})
	}
	if bytes := int64(s.Pages+s.HostPages) * block; s.Pages > maxPages || s.HostPages > maxPages ||
		bytes > maxMemory {
		return cache, nil, fmt.Errorf("%d + %d pages of an engine are %d MiB, which is over the limit",
			s.Pages, s.HostPages, bytes>>20)
	}
	cache.HostCacheSize = int64(s.HostPages) * block
	return cache, pages, nil
}

// spawn starts the engine with its store.
func (h *host) spawn(
	setup engine.Setup, s *Settings, store stores.Store,
) (engine.Engine, func(), error) {
	var options []actors.Option
	if store != nil {
		options = append(options, actors.WithStore(actors.StoreConfig{
			Store: store, Model: s.Model, Save: s.Save, SaveBytes: saveBytes, Concurrency: 1,
			WaitForCopies: s.AwaitSaves,
		}))
	}
	e, stop, err := engine.With(options...)(setup)
	if err != nil {
		return nil, nil, err
	}
	h.engine = e.(*actors.Engine)
	if store == nil {
		return e, stop, nil
	}
	h.stored = &storedEngine{Engine: e, store: actors.StoreOf(h.engine), awaitsSaves: s.AwaitSaves,
		link: s.StoreGbit * 1e9, modelled: h.modelled}
	return h.stored, stop, nil
}

// Next gives the next request that has arrived. It implements serve.Source.
func (h *host) Next(now time.Duration, load serve.Load) (*serve.Request, error) {
	if len(h.queue) == 0 || load == serve.Working && h.queue[0].Arrival > now {
		return nil, nil
	}
	r := h.queue[0]
	h.queue = h.queue[1:]
	return r, nil
}

// Done notes an answer. It implements serve.Source.
func (h *host) Done(r *serve.Request) error {
	o := &r.Outcome
	h.reply.Done = append(h.reply.Done, Answer{Number: r.Number, Reused: o.Reused, First: o.First,
		Done: o.Done, GivenUp: o.GivenUp})
	return nil
}

// run serves a window.
func (h *host) run(ctx context.Context, w Window) (Reply, error) {
	h.reply = Reply{}
	for i := range w.Requests {
		r := request(&w.Requests[i])
		h.queue, h.waiting = append(h.queue, r), append(h.waiting, r)
	}
	// An engine that is idle leaves its clock behind; the next request moves it.
	for h.server.Now() < w.Until {
		more, err := h.server.Step(ctx)
		if err != nil {
			return Reply{}, err
		}
		if !more {
			break
		}
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(r *serve.Request) bool {
		if r.Outcome.First > 0 && !r.Outcome.GivenUp {
			h.reply.Started = append(h.reply.Started, r.Number)
		}
		return r.Outcome.First > 0 || r.Outcome.GivenUp
	})
	h.count()
	return h.reply, nil
}

// request makes one of the server's. The server appends the answer to the tokens.
func request(q *Request) *serve.Request {
	answer := q.Answer
	return &serve.Request{
		Number: q.Number, Tokens: slices.Grow(slices.Clone([]messages.Token(q.Prompt)), len(answer)),
		Prompt: len(q.Prompt), Answer: len(answer),
		Sample: func(i int) messages.Token { return answer[i] }, Arrival: q.Arrival,
	}
}

func (h *host) count() {
	h.reply.Totals = h.server.Totals()
	if h.stored != nil {
		stats := h.stored.store.Stats()
		h.reply.Store, h.reply.Fetching = stats, h.stored.fetching
		h.reply.StoreRead = h.modelled(stats.FetchedObjects, stats.FetchedBytes)
		h.reply.StoreWritten = h.modelled(stats.SavedObjects, stats.SavedBytes)
	}
}

// modelled gives the bytes of the modelled model that objects of the store stand for.
func (h *host) modelled(objects, bytes int64) int64 {
	return h.shape.modelled(objects, bytes, h.tokens)
}

// finish checks every byte of every page in both tiers, and closes the engine.
func (h *host) finish(ctx context.Context) (Reply, error) {
	h.reply = Reply{}
	checked, problems, err := h.rig.Verify(ctx)
	if err != nil {
		return Reply{}, err
	}
	leaked, err := h.rig.Shutdown(ctx)
	if err != nil {
		return Reply{}, err
	}
	if leaked > 0 {
		problems = append(problems, fmt.Sprintf("%d pages are still held by sequences", leaked))
	}
	h.reply.Checked, h.reply.Problems = checked, append(problems, h.server.Compute().Problems...)
	h.count()
	return h.reply, nil
}

// kill closes the engine with all that runs in it.
func (h *host) kill(ctx context.Context) error {
	_, err := h.rig.Shutdown(ctx)
	return err
}
