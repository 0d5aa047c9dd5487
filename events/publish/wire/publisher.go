package wire

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Source is what a publisher asks of an engine. *kvactor.Engine is one.
// It has a reader of its own, so that other readers of the engine lose nothing to it.
type Source interface {
	OpenReader(ctx context.Context) (kvevents.ReaderID, error)
	CloseReader(ctx context.Context, reader kvevents.ReaderID) error
	Events(ctx context.Context, reader kvevents.ReaderID) (kvevents.EventBatch, error)
	Snapshot(ctx context.Context, reader kvevents.ReaderID) (kvevents.EventBatch, error)
	Stats(ctx context.Context) (inspect.Stats, error)
}

// Options are what a publisher is made of. The zero values of the last group are
// replaced by the defaults.
type Options struct {
	Source Source
	View   publish.Config
	Config Config // sockets are opened if it is enabled
	// Rank is in each batch, and is added to the ports of the endpoints.
	Rank   int // data parallel rank
	Logger *slog.Logger

	Interval time.Duration // between two reads of events; 0: 20 ms; negative: only Poll reads
	// Linger is how long the publisher goes on reading events when its last reader has gone.
	// Then it pauses until another one comes, and an engine without readers does no work
	// for it. What the engine's buffer of events has lost by then costs a snapshot.
	Linger time.Duration // 0: 10 s; negative: for ever
	// Each connection has a goroutine or two and a queue, so their number is bounded.
	MaxReaders  int           // of each kind at a time; 0: 64
	Timeout     time.Duration // of handshakes and writes; 0: 10 s
	ReplayBytes int           // of batches that the log keeps; 0: 64 MiB
	// ShowTokens makes the HTTP handler tell tokens and salts.
	ShowTokens bool
	// Polled keeps as many events as TensorRT-LLM's polled ones; 0: none. They have
	// tokens and salts, so PolledHandler is for hosts that want that.
	Polled int
	// WindowSize is what polled events say of the attention window.
	WindowSize int
}

// Publisher publishes the blocks of an engine. Its methods may be called by any number
// of goroutines.
type Publisher struct {
	o      Options
	reader kvevents.ReaderID
	key    [32]byte // of the names of salted blocks over HTTP

	// polling keeps reads of events apart, so that they are followed in their order. It
	// is locked before mu.
	polling sync.Mutex

	mu sync.Mutex
	// mu protects the fields below it, up to the blank line. It is held while a batch is made,
	// and never while the engine or a connection is waited for.
	view      *publish.View
	log       log
	followers map[*follower]struct{}
	polled    []publish.PolledEvent
	numbers   publish.TRTLLM
	asked     time.Time // when a reader last asked for what is published, or was connected
	paused    bool      // run waits for wake

	// pub and replay are nil without sockets; their methods allow that.
	pub, replay *server
	// running ends with the publisher; calls without a context of their own read events with it.
	running context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // capacity 1: a reader has come
	// done counts all goroutines: the poller, those that listen, and one for each connection.
	done   sync.WaitGroup
	closed sync.Once
}

// Start opens the sockets, publishes what the cache holds, and follows it. The context
// bounds the start only.
func Start(ctx context.Context, o Options) (*Publisher, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	if o.Config.Format == "aibrix" && o.View.Only == nil {
		// AIBrix would take salted blocks for public ones: its events have no salt.
		o.View.Only = &messages.Namespace{}
	}
	view, err := publish.New(o.View)
	if err != nil {
		return nil, err
	}
	o.setDefaults()
	p := &Publisher{
		o: o, view: view, followers: map[*follower]struct{}{},
		numbers: publish.TRTLLM{WindowSize: o.WindowSize},
		log:     log{limit: o.Config.BufferSteps, limitBytes: o.ReplayBytes},
		wake:    make(chan struct{}, 1),
	}
	// A key for each start: names of salted blocks cannot be compared with those of before.
	if _, err := rand.Read(p.key[:]); err != nil {
		return nil, err
	}
	if p.reader, err = o.Source.OpenReader(ctx); err != nil {
		return nil, err
	}
	// Not a child of ctx, which may end as soon as Start has returned.
	p.running, p.cancel = context.WithCancel(context.Background())
	err = p.begin(ctx)
	if err == nil && o.Config.Enable && o.Config.Publisher != "null" {
		err = p.listen(p.running)
	}
	if err != nil {
		_ = p.Close(ctx)
		return nil, err
	}
	if o.Interval > 0 {
		p.done.Go(func() { p.run(p.running) })
	}
	return p, nil
}

// setDefaults fills in the zero values.
func (o *Options) setDefaults() {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Interval = cmp.Or(o.Interval, 20*time.Millisecond)
	o.Linger = cmp.Or(o.Linger, 10*time.Second)
	o.MaxReaders = cmp.Or(o.MaxReaders, 64)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.ReplayBytes = cmp.Or(o.ReplayBytes, 64<<20)
	o.Config.BufferSteps = cmp.Or(o.Config.BufferSteps, Default().BufferSteps)
}

// begin publishes batch 0.
//
// It comes before the sockets are open, so that the log has a batch when the first reader
// asks for a replay.
func (p *Publisher) begin(ctx context.Context) error {
	// A snapshot has no sizes of pools; the created events that had them may be lost.
	stats, err := p.o.Source.Stats(ctx)
	if err != nil {
		return err
	}
	snapshot, err := p.o.Source.Snapshot(ctx, p.reader)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range stats.Pools {
		s := &stats.Pools[i]
		p.view.Resize(messages.PoolID(i), events.PoolPages{Primary: s.Primary.Total,
			Secondary: s.Secondary.Total})
	}
	changes, err := p.view.Follow(snapshot)
	if err != nil {
		return err
	}
	// Pollers start from nothing, so they get the blocks without the order to forget.
	p.publish(p.everything(), changes)
	return nil
}

// everything is what a reader that knows nothing right needs: the order to forget, and
// all blocks.
func (p *Publisher) everything() []publish.Change {
	return append([]publish.Change{{Kind: publish.Cleared}}, p.view.All()...)
}

// run polls at the interval, but for pauses, until the publisher or the engine ends.
func (p *Publisher) run(ctx context.Context) {
	// A poll that takes longer than the interval delays the next one; ticks do not add up.
	ticker := time.NewTicker(p.o.Interval)
	defer ticker.Stop()
	for {
		tick := ticker.C
		if p.pause() {
			tick = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			continue // the reader has read events itself
		case <-tick:
		}
		switch err := p.Poll(ctx); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, messages.ErrClosed) || errors.Is(err, messages.ErrFailed):
			p.o.Logger.Info("the engine has ended: nothing more is published", "error", err)
			return
		default:
			// The engine is busy or rebuilds an actor. What was missed shows in the
			// next batch.
			p.o.Logger.Warn("reading events failed", "error", err)
		}
	}
}

// Poll reads the engine's events now and publishes what has changed. The publisher does
// so by itself at its interval while it has readers.
//
// mu is not held while the engine is asked: readers that connect wait for mu, and an
// engine may be busy for long. polling alone keeps two reads in order.
func (p *Publisher) Poll(ctx context.Context) error {
	p.polling.Lock()
	defer p.polling.Unlock()
	batch, err := p.o.Source.Events(ctx, p.reader)
	if err != nil {
		return err
	}
	p.mu.Lock()
	changes, err := p.view.Follow(batch)
	if err == nil {
		p.publish(changes, changes)
	}
	paused := p.paused
	p.mu.Unlock()
	// Events were lost in the engine's buffer. The view makes of the snapshot only what has
	// changed since, so readers need not forget what they know.
	if !errors.Is(err, events.ErrStale) {
		return err
	}
	if !paused { // else they were not wanted
		p.o.Logger.Warn("events were lost: the publisher takes a snapshot", "lost", batch.Lost)
	}
	if batch, err = p.o.Source.Snapshot(ctx, p.reader); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if changes, err = p.view.Follow(batch); err == nil {
		p.publish(changes, changes)
	}
	return err
}

// Announce publishes everything once more, behind an AllBlocksCleared, for readers that
// have come late and ask for no replay.
// HTTP readers that are there get it as well; pollers do not.
func (p *Publisher) Announce() {
	p.attend(p.running)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish(p.everything(), nil)
}

// publish sends a batch to all readers, if it has events; polled are those for readers
// that poll.
//
// The caller holds mu, so sequences, log and readers see batches in one order. Nothing in
// it waits for a reader.
func (p *Publisher) publish(changes, polled []publish.Change) {
	if p.o.Polled > 0 {
		p.polled = p.numbers.Append(p.polled, polled)
		if n := len(p.polled) - p.o.Polled; n > 0 {
			// The ids of polled events are consecutive, so a poller sees how many it has missed.
			// As TensorRT-LLM does: the oldest go, and the ids tell.
			p.polled = append(p.polled[:0], p.polled[n:]...)
		}
	}
	s := &sent{time: now(), changes: changes}
	var events int
	// Changes of priority, for instance, are no events of vLLM: a batch without any would cost
	// every reader a message.
	if s.payload, events = p.encode(s.time, changes); events == 0 {
		return
	}
	// The log comes first: push gives the batch its sequence, which the sockets send.
	p.log.push(s)
	p.pub.broadcast(p.o.Config.Topic, s)
	for f := range p.followers {
		f.offer(s)
	}
}

// now is the time in seconds since 1970, as vLLM's batches have it.
func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// encode writes a batch in the format of the configuration.
// It returns the number of events, since a batch without any is not sent.
func (p *Publisher) encode(at float64, changes []publish.Change) ([]byte, int) {
	b := publish.Batch{Time: at, Rank: p.o.Rank, TokensPerBlock: p.view.TokensPerBlock(),
		Changes: changes}
	if p.o.Config.Format == "aibrix" {
		return publish.AppendAIBrix(nil, &b)
	}
	return publish.AppendVLLM(nil, &b)
}

// Next is the sequence that the next batch will have.
func (p *Publisher) Next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.next
}

// Match is how many of the leading blocks of a prompt are published; the names are
// those of events.Names. Match, Tier and Blocks count as readers: the first call after a
// pause waits for the engine.
func (p *Publisher) Match(names []kvevents.Hash) int {
	p.attend(p.running)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.Match(names)
}

// Tier says where a block is that is published.
func (p *Publisher) Tier(name kvevents.Hash) (t messages.Tier, published bool) {
	p.attend(p.running)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.Tier(name)
}

// Blocks is the number of published blocks.
func (p *Publisher) Blocks() int {
	p.attend(p.running)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.Len()
}

// Close ends all connections and waits for the publisher's goroutines.
func (p *Publisher) Close(ctx context.Context) (err error) {
	p.closed.Do(func() {
		p.cancel()
		// The sockets before the wait: their goroutines end with their connections.
		p.pub.close()
		p.replay.close()
		p.mu.Lock()
		for f := range p.followers {
			f.end()
		}
		p.mu.Unlock()
		p.done.Wait()
		// An engine that has ended has no readers any more.
		err = p.o.Source.CloseReader(ctx, p.reader)
		if errors.Is(err, messages.ErrClosed) || errors.Is(err, messages.ErrFailed) {
			err = nil
		}
	})
	return err
}
