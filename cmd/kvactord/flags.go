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

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/internal/cacheflags"
	"github.com/kvactor/kvactor/cmd/internal/commandline"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/cmd/internal/storeurl"
	"github.com/kvactor/kvactor/cmd/kvactord/internal/daemon"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/kvconfig"
)

// flags are those of the command line.
type flags struct {
	daemon.Config
	memory, staging commandline.Size
	uids            []uint
	cache           cacheflags.Flags
	quotas          []string
	store           storeurl.Flag
	save            string
	observer        observer.Flags
	quiet           bool
}

func (f *flags) add(set *pflag.FlagSet) {
	f.Config = daemon.Defaults()
	set.StringVar(&f.Socket, "socket", "", "`path` of the Unix socket, which is created")
	set.Var(&f.memory, "memory", "`size` of the memory for pages, such as 8GiB")
	set.StringVar(&f.Listen, "listen", "",
		"serve a TCP port of the loopback interface as well: `address`, such as 127.0.0.1:7171")
	set.UintSliceVar(&f.uids, "allow-uid", nil,
		"users beside one's own whose processes may connect, by `number`")
	set.IntVar(&f.Engines, "engines", f.Engines,
		"`number` of models that are served at a time; each has an equal part of the memory")
	f.cache.Add(set)
	set.String("policy", "", "eviction `policy`: "+strings.Join(windows.EvictionPolicies(), ", "))
	set.StringArrayVar(&f.quotas, "quota", nil,
		"`salt=share` of the memory, such as gold=0.5; *=share is that of all other salts")
	f.store.Add(set,
		"keep pages in a store as well, by its `URL`: file:///a/folder, valkey://host:6379")
	set.StringVar(&f.save, "save", "commit", "`when` pages are saved: commit, reuse or evict")
	set.Var(&f.staging, "staging",
		"`size` of the part of the memory that contents of the store come to; default: an eighth")
	set.StringVar(&f.Metrics, "metrics", "",
		"`address` of a page, and of metrics at /metrics; without a host, such as :9400, on this "+
			"machine only")
	f.observer.Add(set)
	set.IntVar(&f.Sessions, "sessions", f.Sessions, "`number` of connections at a time")
	set.IntVar(&f.Handles, "handles", f.Handles,
		"`number` of claims, writes and pins that a session may hold")
	set.IntVar(&f.RequestBytes, "request-bytes", f.RequestBytes,
		"size in `bytes` of the largest request")
	set.DurationVar(&f.Deadline, "deadline", f.Deadline, "`time` of a request that names none")
	set.BoolVar(&f.quiet, "quiet", false, "log warnings and errors only")
	f.cache.Key(set, "policy", "eviction_policy")
	f.cache.KeyOf(set, "staging", "host_cache_size", func() (string, error) {
		return strconv.FormatInt(int64(f.staging), 10), nil
	})
}

// read makes the configuration. The caller calls closeStore when the daemon has ended.
func (f *flags) read(
	ctx context.Context, errs io.Writer,
) (c daemon.Config, closeStore func() error, err error) {
	level := slog.LevelInfo
	if f.quiet {
		level = slog.LevelWarn
	}
	f.Log = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level}))
	for _, uid := range f.uids {
		f.UIDs = append(f.UIDs, uint32(uid))
	}
	if f.memory == 0 || f.Socket == "" {
		return c, nil, errors.New("--socket and --memory are needed")
	}
	f.MemoryBytes = int64(f.memory)
	if err := errors.Join(f.readCache(), f.observer.Read(&f.Events, &f.Aliases)); err != nil {
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
		return fmt.Errorf("--policy %s: there are %s", f.Cache.EvictionPolicy,
			strings.Join(policies, ", "))
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

// openStore opens the store.
func (f *flags) openStore(
	ctx context.Context, notes io.Writer,
) (closeStore func() error, err error) {
	policies := map[string]actors.SavePolicy{"commit": actors.SaveOnCommit,
		"reuse": actors.SaveOnReuse, "evict": actors.SaveHostEvict}
	save, ok := policies[f.save]
	if !ok {
		return nil, fmt.Errorf("--save %s: want commit, reuse or evict", f.save)
	}
	if f.store.URL == "" {
		return func() error { return nil }, nil
	}
	store, err := f.store.Open(ctx, "kvactord", notes)
	if err != nil {
		return nil, err
	}
	f.Store = &actors.StoreConfig{Store: store, Save: save}
	return store.Close, nil
}
