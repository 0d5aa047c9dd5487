package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/internal/cacheflags"
	"github.com/kvactor/kvactor/cmd/internal/storeurl"
	"github.com/kvactor/kvactor/cmd/kvactord/internal/daemon"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// flags are those of the command line.
type flags struct {
	daemon.Config
	memory, staging string
	uids            []uint
	cache           cacheflags.Flags
	quotas          []string
	store           string
	storeRequired   bool
	save            string
	aliases         []string
	events          string
	quiet           bool
}

func (f *flags) add(set *pflag.FlagSet) {
	f.Config = daemon.Defaults()
	set.StringVar(&f.Socket, "socket", "", "`path` of the Unix socket, which is created")
	set.StringVar(&f.memory, "memory", "", "`size` of the memory for pages, such as 8GiB")
	set.StringVar(&f.Listen, "listen", "", "serve a TCP port of the loopback interface as well: `address`, such as 127.0.0.1:7171")
	set.UintSliceVar(&f.uids, "allow-uid", nil, "users beside one's own whose processes may connect, by `number`")
	set.IntVar(&f.Engines, "engines", f.Engines, "`number` of models that are served at a time; each has an equal part of the memory")
	f.cache.Add(set)
	set.String("policy", "", "eviction `policy`: "+strings.Join(windows.EvictionPolicies(), ", "))
	set.StringArrayVar(&f.quotas, "quota", nil, "`salt=share` of the memory, such as gold=0.5; *=share is that of all other salts")
	set.StringVar(&f.store, "store", "", "keep pages in a store as well, by its `URL`: file:///a/folder, valkey://host:6379")
	set.BoolVar(&f.storeRequired, "store-required", false, "end if the store cannot be opened; otherwise start without it and find it later")
	set.StringVar(&f.save, "save", "commit", "`when` pages are saved: commit, reuse or evict")
	set.StringVar(&f.staging, "staging", "", "`size` of the part of the memory that contents of the store come to; default: an eighth")
	set.StringVar(&f.Metrics, "metrics", "", "`address` of a page, and of metrics at /metrics; without a host, such as :9400, on this machine only")
	set.StringSliceVar(&f.aliases, "aliases", nil, "export metrics under the `names` of other engines, too: vllm, trtllm")
	set.StringVar(&f.events, "events", "", "publish the cached blocks over ZeroMQ at an `endpoint`, such as tcp://127.0.0.1:5557, or as vLLM's kv_events_config says in JSON; they have tokens and salts")
	set.IntVar(&f.Sessions, "sessions", f.Sessions, "`number` of connections at a time")
	set.IntVar(&f.Handles, "handles", f.Handles, "`number` of claims, writes and pins that a session may hold")
	set.IntVar(&f.RequestBytes, "request-bytes", f.RequestBytes, "size in `bytes` of the largest request")
	set.DurationVar(&f.Deadline, "deadline", f.Deadline, "`time` of a request that names none")
	set.BoolVar(&f.quiet, "quiet", false, "log warnings and errors only")
	f.cache.Key(set, "policy", "eviction_policy")
	f.cache.KeyOf(set, "staging", "host_cache_size", func() (string, error) {
		bytes, err := parseSize(f.staging)
		return strconv.FormatInt(bytes, 10), err
	})
}

// read makes the configuration. The caller calls closeStore when the daemon has ended.
func (f *flags) read(ctx context.Context, errs io.Writer) (c daemon.Config, closeStore func() error, err error) {
	level := slog.LevelInfo
	if f.quiet {
		level = slog.LevelWarn
	}
	f.Log = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level}))
	for _, uid := range f.uids {
		f.UIDs = append(f.UIDs, uint32(uid))
	}
	if f.memory == "" || f.Socket == "" {
		return c, nil, errors.New("--socket and --memory are needed")
	}
	if f.MemoryBytes, err = parseSize(f.memory); err != nil {
		return c, nil, fmt.Errorf("--memory: %w", err)
	}
	if err := errors.Join(f.readCache(), f.readAliases(), f.readEvents()); err != nil {
		return c, nil, err
	}
	closeStore, err = f.openStore(ctx, errs)
	return f.Config, closeStore, err
}

// readCache reads the configuration of the cache; flags come before the file.
func (f *flags) readCache() (err error) {
	if f.Cache, err = f.cache.Read(f.Cache); err != nil {
		return err
	}
	if policies := windows.EvictionPolicies(); !slices.Contains(policies, f.Cache.EvictionPolicy) {
		return fmt.Errorf("--policy %s: there are %s", f.Cache.EvictionPolicy, strings.Join(policies, ", "))
	}
	return f.readQuotas()
}

// readQuotas adds --quota to those of the file.
func (f *flags) readQuotas() error {
	shares := map[string]float64{}
	maps.Copy(shares, f.Cache.SaltQuotas)
	for _, text := range f.quotas {
		at := strings.LastIndexByte(text, '=')
		share, err := strconv.ParseFloat(text[at+1:], 64)
		if at < 1 || err != nil {
			return errors.New("--quota: want salt=share, such as gold=0.5") // the salt is a secret
		}
		if text[:at] != "*" {
			shares[text[:at]] = share
		} else if err := kvconfig.Set(&f.Cache, "other_salts_quota", text[at+1:]); err != nil {
			return fmt.Errorf("--quota: %w", err)
		}
	}
	if len(shares) > 0 {
		f.Cache.SaltQuotas = shares
	}
	return nil
}

func (f *flags) readAliases() error {
	for _, name := range f.aliases {
		switch name {
		case "vllm":
			f.Aliases |= metrics.AliasVLLM | metrics.AliasVLLMLegacy
		case "trtllm":
			f.Aliases |= metrics.AliasTensorRTLLM
		default:
			return fmt.Errorf("--aliases %s: want vllm or trtllm", name)
		}
	}
	return nil
}

func (f *flags) readEvents() (err error) {
	switch {
	case f.events == "":
		return nil
	case strings.HasPrefix(strings.TrimSpace(f.events), "{"):
		f.Events, err = wire.ParseConfig([]byte(f.events))
	default:
		f.Events.Enable, f.Events.Endpoint = true, f.events
		err = f.Events.Validate()
	}
	if err != nil {
		return fmt.Errorf("--events: %w", err)
	}
	return nil
}

// openTime is how long the start waits for the store.
const openTime = 2 * time.Second

// openStore opens the store. One that cannot be opened yet keeps the daemon from starting only
// if the user says so.
func (f *flags) openStore(ctx context.Context, notes io.Writer) (closeStore func() error, err error) {
	policies := map[string]actors.SavePolicy{"commit": actors.SaveOnCommit, "reuse": actors.SaveOnReuse, "evict": actors.SaveHostEvict}
	save, ok := policies[f.save]
	if !ok {
		return nil, fmt.Errorf("--save %s: want commit, reuse or evict", f.save)
	}
	if f.store == "" {
		return func() error { return nil }, nil
	}
	store := stores.OpenLater(func(ctx context.Context) (stores.Store, error) { return storeurl.Open(ctx, f.store) })
	limited, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := store.Open(limited); err != nil {
		err = fmt.Errorf("--store: %w", err)
		if f.storeRequired || errors.Is(err, stores.ErrURL) {
			return nil, errors.Join(err, store.Close())
		}
		fmt.Fprintf(notes, "kvactord: %v; starting without it\n", err)
	}
	f.Store = &actors.StoreConfig{Store: store, Save: save}
	return store.Close, nil
}

// parseSize reads a number of bytes: 4096, 512MiB, 8GiB, 1TiB, and 8GB of 1000³.
func parseSize(text string) (int64, error) {
	units := []struct {
		suffix string
		bytes  float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if bytes := n * u.bytes; err == nil && bytes >= 1 && bytes < 1<<62 {
			return int64(bytes), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is no size, such as 512MiB or 8GiB", text)
}
