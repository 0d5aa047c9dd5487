package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/kvactor/kvactor/messages/kvevents"
)

// stream is the index of an engine in another process. It follows the server-sent events
// of package wire: a snapshot, then each batch as it is published. An engine publishes a
// block while all its pools with full attention have it, and those before it. Where there
// are no other pools, an admission there reuses as many blocks as the stream knows of a
// prompt. Of a model with windows it may reuse fewer, if a window's pages are evicted; and
// of one with windows alone more, since it needs no block before the window.
type stream struct {
	end  context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	blocks  map[uint64]struct{} // by name
	next    uint64              // sequence of the next batch
	events  int
	err     error         // why the stream has ended
	changed chan struct{} // closed and replaced with each batch
}

// batch is what the stream reads of a batch.
type batch struct {
	Sequence uint64 `json:"sequence"`
	Events   []struct {
		Type   string   `json:"type"`
		Blocks []string `json:"blocks"`
	} `json:"events"`
}

// openStream connects to the events at a URL.
func openStream(ctx context.Context, url string) (*stream, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		cancel()
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		cancel()
		return nil, errors.Join(fmt.Errorf("%s: %s", url, response.Status), response.Body.Close())
	}
	s := &stream{end: cancel, done: make(chan struct{}), blocks: map[uint64]struct{}{},
		changed: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := s.read(bufio.NewReader(response.Body))
		s.set(func() { s.err = errors.Join(err, response.Body.Close()) })
	}()
	return s, nil
}

// read applies batches until the stream ends.
func (s *stream) read(in *bufio.Reader) error {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var b batch
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		s.set(func() { err = s.apply(&b) })
		if err != nil {
			return err
		}
	}
}

// set changes the stream and wakes who waits for that.
func (s *stream) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// apply takes a batch over. The first one clears everything, and has any sequence; after
// it a gap means that batches were lost. A contradiction is an error: it would show that
// the index is not exact.
func (s *stream) apply(b *batch) error {
	if first := s.events == 0; !first && b.Sequence != s.next {
		return fmt.Errorf("batch %d of events where batch %d should be", b.Sequence, s.next)
	}
	s.next = b.Sequence + 1
	for _, e := range b.Events {
		s.events++
		if e.Type == "cleared" {
			clear(s.blocks)
		}
		for _, text := range e.Blocks {
			name, err := strconv.ParseUint(text, 16, 64)
			if err != nil {
				return fmt.Errorf("a block with the name %q", text)
			}
			_, known := s.blocks[name]
			if known != (e.Type != "stored") {
				return fmt.Errorf("block %s is %s, and was known before: %v", text, e.Type, known)
			}
			switch e.Type {
			case "stored":
				s.blocks[name] = struct{}{}
			case "removed":
				delete(s.blocks, name)
			}
		}
	}
	return nil
}

// reach waits until all batches before a sequence have been applied.
func (s *stream) reach(ctx context.Context, next uint64) error {
	for {
		s.mu.Lock()
		reached, err, changed := s.next >= next, s.err, s.changed
		s.mu.Unlock()
		switch {
		case reached:
			return nil
		case err != nil:
			return fmt.Errorf("the events have ended: %w", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// match is how many of the leading blocks of a prompt are published. Names on the wire
// are the ends of the engine's.
func (s *stream) match(names []kvevents.Hash) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range names {
		name := max(1, binary.BigEndian.Uint64(names[i][len(names[i])-8:]))
		if _, ok := s.blocks[name]; !ok {
			return i
		}
	}
	return len(names)
}

func (s *stream) index() Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Index{Blocks: len(s.blocks), Events: s.events}
}

// close ends the stream and waits for its goroutine.
func (s *stream) close() {
	s.end()
	<-s.done
}
