package actors

import (
	"cmp"
	"time"

	"github.com/kvactor/kvactor/actors/internal/settings"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// StoreConfig attaches an engine to a store, the tier beyond host memory.
type StoreConfig struct {
	Store stores.Store
	// Model names the weights, such as a hash of their files: engines with different
	// weights must not have the same name. It is a part of every key.
	Model string
	Save  SavePolicy
	// WriteOnly says that the engine only saves: others read what it has computed. What is
	// fetched comes to host memory first, so an engine whose memory split gives a pool no host
	// pages is refused otherwise. Config.Pages that say 0 secondary pages are taken as they are.
	// What the store has already of a page to be saved is read once, and replaced if it cannot be
	// used.
	WriteOnly bool
	// MinPriority is the least priority of pages that are saved.
	MinPriority messages.Priority
	// SaveBytes bounds the host memory for bytes on their way to the store. What does not fit
	// is not saved, and counted. 0 means DefaultSaveBytes. It is a part of the cache's HostCacheSize,
	// a quarter at most; a pool without host pages, and pages that the host counts
	// (Config.Pages), have it beside. Encoded objects have 16 MiB, or one page, for each of
	// Concurrency. Where the host memory of a pool is the application's (PoolMemory.Host), its
	// part is in the bytes beyond the secondary pages, as many pages as fit.
	SaveBytes int64
	// FetchBytes bounds what one Fetch reads; 0 means DefaultFetchBytes.
	FetchBytes int64
	// Concurrency is how many batches of up to 16 MiB are written at a time; 0 means 2.
	Concurrency int
	// Timeout bounds each call of the store; 0 means DefaultStoreTimeout.
	Timeout time.Duration
	// BreakerFailures is how many calls must fail one after the other for the breaker to
	// open; 0 means 3, below 0 never. An open breaker fails calls at once. A task of its own
	// probes the store after BreakerPause (0: 1s), then after twice as long, up to 32 times
	// as long, and closes the breaker when the store answers.
	BreakerFailures int
	BreakerPause    time.Duration
	// WaitForCopies makes the engine wait for a copy to host memory that is under way
	// when the host page is to be saved. By default such a page is not saved. It is for
	// tests that count.
	WaitForCopies bool
	// Compressor makes compressors for pages; nil: they are not compressed.
	Compressor func() stores.Compressor
}

// Limits of a StoreConfig that says nothing.
const (
	DefaultSaveBytes    = 256 << 20
	DefaultFetchBytes   = 1 << 30
	DefaultStoreTimeout = 5 * time.Second
)

// SavePolicy says when pages are saved.
type SavePolicy uint8

// The policies.
const (
	SaveOnReuse   SavePolicy = iota // all pages of a block, when an admission reuses it whole
	SaveOnCommit                    // a page when it is first stored in its pool
	SaveHostEvict                   // a page that host memory drops
)

// WithStore attaches the engine to a store. The host closes the store when the engine is
// closed.
func WithStore(c StoreConfig) Option {
	return func(s *settings.Settings) { s.Store = &c }
}

// refuse is a problem of the configuration.
func (c *StoreConfig) refuse(format string, args ...any) error {
	return refusals.New(messages.ErrConfigInvalid, "WithStore: "+format, args...)
}

// problems are the wrong values; nil: there is no store, or it has none.
func (c *StoreConfig) problems() (errs []error) {
	if c == nil {
		return nil
	}
	if c.Store == nil {
		errs = append(errs, c.refuse("StoreConfig.Store is nil"))
	}
	if c.Model == "" {
		errs = append(errs, c.refuse("StoreConfig.Model is empty: it names the model and its weights"))
	}
	if c.Save > SaveHostEvict {
		errs = append(errs, c.refuse("save policy %d", c.Save))
	}
	if c.MinPriority > messages.MaxPriority {
		errs = append(errs, c.refuse("priority %d is above %d", c.MinPriority, messages.MaxPriority))
	}
	if c.SaveBytes < 0 || c.FetchBytes < 0 || c.Concurrency < 0 || c.Timeout < 0 ||
		c.BreakerPause < 0 {
		errs = append(errs, c.refuse("a bound is below 0"))
	}
	return errs
}

// resolve fills in what the configuration leaves open, and refuses what does not fit the pools.
func (c *StoreConfig) resolve(
	engine *Config, pools []windows.Pool, counts []windows.PageCounts,
) error {
	for i := range counts {
		if engine.Pages == nil && !c.WriteOnly && counts[i].Secondary == 0 {
			return c.refuse("pool %s has no host pages, where a fetch brings what it finds: "+
				"host_cache_size is %d bytes, and WriteOnly not set", pools[i].Name, engine.Cache.HostCacheSize)
		}
		if engine.Pages == nil && counts[i].Secondary == 1 {
			return c.refuse("pool %s has one host page, and none for bytes on their way to the store: "+
				"host_cache_size is %d bytes", pools[i].Name, engine.Cache.HostCacheSize)
		}
	}
	for i := range engine.Memory {
		if engine.Memory[i].Host != nil && engine.pagesBeyond(i, &pools[i]) < 1 {
			return c.refuse(
				"the host memory of pool %s is the application's, and beyond %d secondary pages it has no "+
					"room for one on its way to the store",
				pools[i].Name, engine.Pages[i].Secondary)
		}
	}
	c.SaveBytes = cmp.Or(c.SaveBytes, DefaultSaveBytes)
	c.FetchBytes = cmp.Or(c.FetchBytes, DefaultFetchBytes)
	c.Concurrency = cmp.Or(c.Concurrency, 2)
	c.Timeout = cmp.Or(c.Timeout, DefaultStoreTimeout)
	c.BreakerFailures = cmp.Or(c.BreakerFailures, 3)
	c.BreakerPause = cmp.Or(c.BreakerPause, time.Second)
	return nil
}
