package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	_ "gocloud.dev/blob/fileblob" // file://

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/blob"
	"github.com/kvactor/kvactor/offloader/stores/valkey"
)

// storeFlag is --store: where pages are kept beyond the process.
type storeFlag struct{ url string }

func (f *storeFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "store", "", "keep computed pages in a store and start from it: file:///a/folder, valkey://host:6379")
}

// storeHostPages is how many host pages a pool has with a store unless a flag says it:
// what is fetched comes there first.
const storeHostPages = 256

// fetchTime is how long an admission waits for the store at most.
const fetchTime = 10 * time.Second

// attach makes engines of the configuration use the store. The caller closes it behind
// the engine. path names the weights: their hash is a part of every key.
func (f *storeFlag) attach(ctx context.Context, c *runner.Config, weights fs.FS, path string) (close func() error, err error) {
	if f.url == "" {
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
	c.Options = append(c.Options, actors.WithStore(config))
	return config.Store.Close, nil
}

// open opens the store for engines of a model. The caller closes it behind them.
func (f *storeFlag) open(ctx context.Context, model string) (actors.StoreConfig, error) {
	store, err := openStore(ctx, f.url)
	if err != nil {
		return actors.StoreConfig{}, fmt.Errorf("--store: %w", err)
	}
	return actors.StoreConfig{Store: store, Model: model, Save: actors.SaveOnCommit}, nil
}

// openStore opens the store that a URL names.
func openStore(ctx context.Context, text string) (stores.Store, error) {
	// First, as its URL may have a password, which the errors of package url would show.
	if strings.HasPrefix(text, "valkey") || strings.HasPrefix(text, "redis") {
		return valkey.Open(text)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme == "file" && u.RawQuery == "":
		// Files appear under their names when they are complete, without a second file each.
		u.RawQuery = "create_dir=1&metadata=skip&no_tmp_dir=1"
	}
	return blob.Open(ctx, u.String(), blob.Options{})
}

// hashOf is the hash of all files of a model: of a folder, or of the one file at path.
func hashOf(files fs.FS, path string) (string, error) {
	h := sha256.New()
	add := func(open func() (io.ReadCloser, error)) error {
		r, err := open()
		if err != nil {
			return err
		}
		_, err = io.Copy(h, r)
		return errors.Join(err, r.Close())
	}
	if files == nil {
		err := add(func() (io.ReadCloser, error) { return os.Open(path) })
		return hex.EncodeToString(h.Sum(nil)), err
	}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fmt.Fprintf(h, "%q ", name)
		return add(func() (io.ReadCloser, error) { return files.Open(name) })
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
