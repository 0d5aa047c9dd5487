package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/internal/storeurl"
)

// storeFlag is --store: where pages are kept beyond the process.
type storeFlag struct {
	storeurl.Flag
	notes io.Writer // is told when the store fails and when it is back
}

func (f *storeFlag) add(flags *pflag.FlagSet) {
	f.Add(flags,
		"keep computed pages at a `URL` and start from them: file:///a/folder, valkey://host:6379")
}

// storeHostPages is how many host pages a pool has with a store unless a flag says it:
// what is fetched comes there first.
const storeHostPages = 256

// fetchTime is how long a request waits for the store at most: what has come by then is used,
// and the rest is computed.
const fetchTime = time.Second

// attach makes engines of the configuration use the store. The caller closes it behind
// the engine. path names the weights: their hash is a part of every key.
func (f *storeFlag) attach(
	ctx context.Context, c *runner.Config, weights fs.FS, path string,
) (close func() error, err error) {
	if f.URL == "" {
		return func() error { return nil }, nil
	}
	name, err := hashOf(weights, path)
	if err != nil {
		return nil, err
	}
	config, err := f.open(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.HostPages == 0 {
		c.HostPages = storeHostPages
	}
	c.Fetch = fetchTime
	c.Options = append(c.Options, actors.WithStore(config), f.logger())
	return config.Store.Close, nil
}

// logger makes an engine tell when its store fails and when it is back.
func (f *storeFlag) logger() actors.Option {
	handler := slog.NewTextHandler(f.notes, &slog.HandlerOptions{Level: slog.LevelWarn})
	return actors.WithLogger(slog.New(handler))
}

// open opens the store for engines of a model. The caller closes it behind them.
func (f *storeFlag) open(ctx context.Context, model string) (actors.StoreConfig, error) {
	store, err := f.Open(ctx, "demo", f.notes)
	if err != nil {
		return actors.StoreConfig{}, err
	}
	return actors.StoreConfig{Store: store, Model: model, Save: actors.SaveOnCommit}, nil
}

// hashOf is the hash of all files of a model: of a folder, or of the one file at path.
func hashOf(files fs.FS, path string) (string, error) {
	root := "."
	if files == nil {
		files, root = os.DirFS(filepath.Dir(path)), filepath.Base(path)
	}
	h := sha256.New()
	err := fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if root == "." {
			fmt.Fprintf(h, "%q ", name)
		}
		file, err := files.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(h, file)
		return errors.Join(err, file.Close())
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
