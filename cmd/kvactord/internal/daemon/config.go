package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/metrics"
)

// Config says what a daemon serves, and how.
type Config struct {
	Socket string // path of the Unix socket
	Listen string // address of a TCP port on the loopback interface; empty: none
	// UIDs are the users beside the daemon's own whose processes may connect.
	UIDs []uint32

	MemoryBytes int64 // of all engines: pages, and the pages that contents of a store come to
	// Engines is how many engines there may be at a time. Each has an equal part of the memory.
	Engines int
	// Cache is the configuration of the engines. What clients say of their models is not in it.
	Cache kvactor.CacheConfig
	// Store attaches an engine to the store, with the fingerprint of its sessions; nil: none.
	Store *actors.StoreConfig

	Metrics string // address of the page and of metrics; empty: none
	Aliases metrics.Aliases
	Events  wire.Config // published if it is enabled

	Sessions     int           // connections at a time, of sessions and attached to them
	Handles      int           // claims, writes and pins of a session
	RequestBytes int           // of a frame
	Deadline     time.Duration // of a request that names none

	Log *slog.Logger
}

// Defaults returns a configuration with the default bounds.
func Defaults() Config {
	return Config{
		Engines: 1, Cache: kvactor.DefaultCache(), Events: wire.Default(),
		Sessions: 4096, Handles: 1 << 16, RequestBytes: 64 << 20, Deadline: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
}

// check returns everything that is wrong.
func (c *Config) check() error {
	var problems []error
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	d := kvactor.DefaultCache()
	say(c.Socket == "", "there is no socket")
	say(c.MemoryBytes < 1<<20, "--memory: %d bytes are less than 1 MiB", c.MemoryBytes)
	say(c.Engines < 1 || c.Engines > 64, "--engines %d is not within 1 and 64", c.Engines)
	say(c.Sessions < 1, "--sessions %d is not at least 1", c.Sessions)
	say(c.Handles < 1, "--handles %d is not at least 1", c.Handles)
	say(c.Deadline <= 0, "--deadline %s is not above 0", c.Deadline)
	say(c.RequestBytes < openBytes, "--request-bytes %d is not at least %d", c.RequestBytes, openBytes)
	cache := &c.Cache
	say(cache.TokensPerBlock != d.TokensPerBlock,
		"tokens_per_block %d: sessions set it, as block_tokens of Open, so it has no place here",
		cache.TokensPerBlock)
	say(len(cache.MaxAttentionWindow) > 0,
		"max_attention_window %v: sessions set it, as window of their groups, so it has no place here",
		cache.MaxAttentionWindow)
	say(cache.DType != d.DType,
		"dtype %s: sessions set the bytes of a block, as layer_bytes of their groups, "+
			"so it has no place here", cache.DType)
	say(cache.SinkTokenLength != 0,
		"sink_token_length %d: groups of sessions have no sinks, so it has no place here",
		cache.SinkTokenLength)
	say(cache.FreeGPUMemoryFraction != d.FreeGPUMemoryFraction,
		"free_gpu_memory_fraction %v: the daemon uses no GPU memory, and --memory sets its size, "+
			"so it has no place here",
		cache.FreeGPUMemoryFraction)
	say(cache.HostCacheSize >= c.MemoryBytes,
		"host_cache_size %d: this part of the memory takes what a store brings, "+
			"and must be less than its %d bytes",
		cache.HostCacheSize, c.MemoryBytes)
	say(c.Events.Enable && c.Engines > 1, "events are published of one engine, not of %d", c.Engines)
	if c.Listen != "" {
		problems = append(problems, loopback(c.Listen))
	}
	return errors.Join(problems...)
}

// loopback refuses an address that other machines can reach.
func loopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s: only the loopback interface is served", address)
	}
	return nil
}
