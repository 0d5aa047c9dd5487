package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages/kvevents"
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

// Settings are those of one engine.
type Settings struct {
	Shape          string // one of Models; "": the first of them
	TokensPerBlock int
	Pages          int // of each pool, as are HostPages
	HostPages      int
	// Model names the weights in the store. A run that begins with an empty store has a
	// name of its own.
	Model     string
	Save      actors.SavePolicy // when pages are saved
	StoreGbit float64           // of the modelled link to the store, in Gbit/s
}

// host is one engine with the server in front of it, of whose requests it is the source. Its
// router follows it with a mirror, which holds it to every one of its events. It belongs to one
// goroutine at a time.
type host struct {
	shape  shape
	tokens int // of a block
	rig    *engine.Rig
	stage  *stage        // nil: no store
	stored *storedEngine // nil: no store
	server *serve.Server
	queue  []*serve.Request // by arrival
	done   []*serve.Request // in the window

	reader kvevents.ReaderID
	mirror *events.Mirror
	events int // followed so far
}

// newHost starts an engine. The store is shared with other engines and may be nil.
func newHost(ctx context.Context, s Settings, store stores.Store) (*host, error) {
	h := &host{tokens: s.TokensPerBlock, mirror: events.NewMirror()}
	var err error
	if h.shape, err = shapeOf(s.Shape); err != nil {
		return nil, err
	}
	if s.Pages > maxPages || s.HostPages > maxPages {
		return nil, fmt.Errorf("%d + %d pages of an engine are over the limit of %d", s.Pages,
			s.HostPages, maxPages)
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow, cache.EventBufferMaxSize = s.TokensPerBlock,
		h.shape.Windows, eventBuffer
	options := engine.Options{Model: h.shape.Model, Cache: cache, Limit: maxMemory,
		Pages: windows.PageCounts{Primary: s.Pages, Secondary: s.HostPages}}
	if store != nil {
		h.stage = newStage(store)
		options.More = []actors.Option{actors.WithStore(actors.StoreConfig{
			Store: h.stage, Model: s.Model, Save: s.Save, SaveBytes: saveBytes, Concurrency: 1,
			WaitForCopies: true,
		})}
	}
	if h.rig, err = engine.Open(options); err != nil {
		return nil, err
	}
	if store != nil {
		h.stored = &storedEngine{Engine: h.rig.Engine, store: actors.StoreOf(h.rig.Facade.Actors()),
			link: s.StoreGbit * 1e9, modelled: h.modelled, advance: h.rig.Sim.Advance}
		h.rig.Engine = h.stored
	}
	h.server, err = serve.New(serve.Config{
		Rig: h.rig, Name: "host", Model: h.shape.Costs, GPU: cost.H100(), MaxRunning: maxRunning,
		StepTokens: max(stepTokens, s.TokensPerBlock),
	}, h)
	if err == nil {
		h.reader, err = h.rig.Facade.OpenReader(ctx)
	}
	if err == nil {
		err = h.snapshot(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, h.kill(context.WithoutCancel(ctx)))
	}
	return h, nil
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
	h.done = append(h.done, r)
	return nil
}

// run takes requests and serves up to a time.
func (h *host) run(ctx context.Context, requests []*serve.Request, until time.Duration) error {
	h.queue = append(h.queue, requests...)
	// An engine that is idle leaves its clock behind; the next request moves it.
	for h.server.Now() < until {
		if more, err := h.server.Step(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}

// follow publishes what the engine has written and takes its events. Contradictions in
// them are errors.
func (h *host) follow(ctx context.Context) error {
	if h.stage != nil {
		if err := h.stage.publish(ctx); err != nil {
			return err
		}
	}
	batch, err := h.rig.Facade.Events(ctx, h.reader)
	if err != nil {
		return err
	}
	h.events += len(batch.Events)
	if batch.Lost > 0 {
		return h.snapshot(ctx)
	}
	return h.mirror.Follow(batch)
}

func (h *host) snapshot(ctx context.Context) error {
	batch, err := h.rig.Facade.Snapshot(ctx, h.reader)
	if err != nil {
		return err
	}
	return h.mirror.Follow(batch)
}

// match is how many of the leading blocks of a prompt the mirror has.
func (h *host) match(names []kvevents.Hash) int { return h.mirror.Match(h.rig.Pools, names) }

// blocks is the size of the mirror.
func (h *host) blocks() int { return h.mirror.Len() }

// modelled gives the bytes of the modelled model that objects of the store stand for.
func (h *host) modelled(objects, bytes int64) int64 {
	return h.shape.modelled(objects, bytes, h.tokens)
}

// finish compares the mirror with the engine, checks every byte of every page in both tiers, and
// closes the engine.
func (h *host) finish(ctx context.Context) (checked int, problems []string, err error) {
	batch, err := h.rig.Facade.Snapshot(ctx, h.reader)
	if err != nil {
		return 0, nil, err
	}
	wrong := h.mirror.Compare(batch)
	if checked, problems, err = h.rig.Verify(ctx); err != nil {
		return 0, nil, err
	}
	leaked, err := h.rig.Shutdown(ctx)
	if leaked > 0 {
		problems = append(problems, fmt.Sprintf("%d pages are still held by sequences", leaked))
	}
	problems = append(problems, h.server.Compute().Problems()...)
	if wrong != nil {
		problems = append(problems, fmt.Sprintf("the index is not the engine's: %v", wrong))
	}
	return checked, problems, err
}

// kill closes the engine with all that runs in it.
func (h *host) kill(ctx context.Context) error {
	_, err := h.rig.Shutdown(ctx)
	return err
}
