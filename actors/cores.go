package actors

import (
	"crypto/rand"

	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// The functions of this file make the cores of the actors, at the start and when an
// actor has failed within a change.

// newTree makes an empty tree. It has room for as many blocks as the largest pool
// has pages; more are made when they are stored.
//
// Changes are recorded for a store, too.
func (e *Engine) newTree() *tree.Tree {
	shapes := make([]tree.PoolShape, len(e.validate.Pools))
	blocks, host := 0, false
	for i, p := range e.validate.Pools {
		shapes[i] = tree.PoolShape{Window: p.Window, Sink: p.Sink, Chunk: p.Chunk,
			State: p.Kind == windows.KindState, Cross: p.Kind == windows.KindCross}
		blocks = max(blocks, e.validate.Counts[i].Primary)
		host = host || e.validate.Counts[i].Secondary > 0
	}
	least := messages.Priority(0)
	if e.store != nil {
		least = e.saver.config.MinPriority
	}
	return tree.New(tree.Config{
		SavePriority:   least,
		TokensPerBlock: e.validate.TokensPerBlock, Pools: shapes, Blocks: blocks,
		Events: e.config.Cache.EventBufferMaxSize > 0 || e.store != nil, Host: host,
		Follow: e.config.Cache.EvictionPolicy == windows.Forecast,
	})
}

// newPool makes pool i with all pages free.
//
// The seed of a forecast is the pool's number: two runs of the same requests evict the
// same pages.
func (e *Engine) newPool(i int) *pool.Pool {
	p, pages, quotas := &e.validate.Pools[i], e.validate.Counts[i].Primary, e.config.Cache.Quotas()
	tokens := e.validate.TokensPerBlock
	return pool.NewWith(p.Name, pages, evict.Options{
		Name: e.config.Cache.EvictionPolicy,
		Seed: uint64(i) + 1, Span: protocol.SpanOf(tokens), BlockTokens: tokens,
		States:    p.Kind == windows.KindState,
		DoublesAt: float64(e.config.Cache.PrefillDoublesAt) / float64(tokens),
	}, quotas...)
}

// newOffloader makes the core of empty host memory.
//
// It is called again after a failure, so it reads only what does not change while the
// engine runs.
func (e *Engine) newOffloader() *offloader.Offloader {
	c := offloader.Config{
		MinPriority: messages.Priority(e.config.Cache.SecondaryOffloadMinPriority),
		Quotas:      e.config.Cache.Quotas(),
		Passed:      e.config.Device.Done,
		SkipWait:    e.settings.SkipWait,
	}
	if e.saver.evicts() {
		c.TakeSavePage, c.MinSavePriority = e.saver.take, e.saver.config.MinPriority
	}
	if !e.config.Cache.OnboardBlocks {
		c.MinPriority = messages.MaxPriority + 1 // nothing is brought back, so nothing is kept
	}
	for i, p := range e.validate.Pools {
		n := e.validate.Counts[i]
		c.Pools = append(c.Pools, offloader.PoolConfig{
			Policy: e.config.Cache.EvictionPolicy,
			Name:   p.Name, HostPages: n.Secondary, PageBytes: p.PageBytes(),
			SparePages:     e.hostPages[i].Ahead,
			TokensPerBlock: p.TokensPerBlock, Regions: p.Regions(),
		})
	}
	return offloader.New(c)
}

// storeConfig is that of an engine's store; nil: there is none.
func storeConfig(s *settings.Settings) *StoreConfig {
	c, _ := s.Store.(*StoreConfig)
	return c
}

// newEvents makes the log, which begins with the pools. Its id tells readers that the
// numbers of events begin again: a random text, because engines of different processes
// must differ, too.
func (e *Engine) newEvents() *events.Log {
	c := events.Config{Limit: e.config.Cache.EventBufferMaxSize, Engine: rand.Text()}
	log := events.New(c)
	for _, p := range e.pools {
		log.Created(p.ID, events.PoolPages{Primary: p.PrimaryPages, Secondary: p.SecondaryPages})
	}
	return log
}
