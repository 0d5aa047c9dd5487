package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/offloader/stores"
)

// OpenStore opens the store that a URL names.
type OpenStore func(ctx context.Context, url string) (stores.Store, error)

// Serve is an engine's process: it reads settings, then windows until it is told to finish
// or the input ends, which is the end of the process that has started it.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open OpenStore) error {
	decode, encode := json.NewDecoder(in), json.NewEncoder(out)
	var s Settings
	if err := decode.Decode(&s); err != nil {
		return err
	}
	c := &child{}
	if err := c.open(ctx, s, open); err != nil {
		return errors.Join(encode.Encode(started{Error: err.Error()}), c.close(ctx))
	}
	err := encode.Encode(started{Events: c.url})
	for err == nil {
		var w Window
		if err = decode.Decode(&w); err != nil {
			break
		}
		r, failed := c.run(ctx, w)
		if failed != nil {
			r.Error = failed.Error()
		}
		err = encode.Encode(r)
		if w.Finish || failed != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, c.close(ctx))
}

// child is the engine of a process, with what publishes its events.
type child struct {
	host      *host
	store     stores.Store
	publisher *wire.Publisher
	url       string
	stop      func() // of the server of the events
	finished  bool
}

func (c *child) open(ctx context.Context, s Settings, open OpenStore) (err error) {
	if s.Store != "" {
		if c.store, err = open(ctx, s.Store); err != nil {
			return err
		}
	}
	if c.host, err = newHost(s, c.store); err != nil {
		return err
	}
	// Windows end with a Poll, so a router that has followed to its end is exact.
	c.publisher, err = wire.Start(ctx, wire.Options{
		Source: engine.Readable{Engine: c.host.engine}, View: publish.Config{Pools: c.host.rig.Pools},
		Config: wire.Default(), Interval: -1,
	})
	if err != nil {
		return err
	}
	at, stop, err := page.Serve("127.0.0.1:0", c.publisher)
	if err != nil {
		return err
	}
	c.url, c.stop = "http://"+at.String()+"/events", stop
	return nil
}

func (c *child) run(ctx context.Context, w Window) (Reply, error) {
	if w.Finish {
		c.finished = true
		blocks := c.publisher.Blocks()
		r, err := c.host.finish(ctx)
		r.Blocks, r.Next = blocks, c.publisher.Next()
		return r, err
	}
	r, err := c.host.run(ctx, w)
	if err == nil {
		err = c.publisher.Poll(ctx)
	}
	r.Next = c.publisher.Next()
	return r, err
}

// close ends what has been opened, in the opposite order.
func (c *child) close(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	if c.stop != nil {
		c.stop()
	}
	if c.publisher != nil {
		err = c.publisher.Close(ctx)
	}
	if c.host != nil && !c.finished {
		err = errors.Join(err, c.host.kill(ctx))
	}
	if c.store != nil {
		err = errors.Join(err, c.store.Close())
	}
	return err
}
