package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvactor/kvactor/events/publish/wire/zmtp"
)

// server is a socket of ZeroMQ: what listens or connects, and the connections.
//
// mu protects the fields below it, and is locked after Publisher.mu where both are:
// addTopic needs the log to stand still.
type server struct {
	p      *Publisher
	socket string // PUB or ROUTER
	// serve runs on the goroutine of a connection and returns when the connection has ended.
	peers []string // types
	serve func(*zmtp.Conn)

	listener net.Listener // nil: it connects
	dial     endpoint

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	subs  map[*subscriber]struct{}
	ended bool
}

// listen opens the sockets of the configuration.
func (p *Publisher) listen(ctx context.Context) (err error) {
	p.pub = p.newServer("PUB", "SUB", "XSUB")
	p.pub.serve = p.pub.serveSubscriber
	if err = p.pub.start(ctx, p.o.Config.Endpoint); err != nil {
		return err
	}
	if p.o.Config.ReplayEndpoint == "" {
		return nil
	}
	// The pairs are those of ZeroMQ's REQREP specification, RFC 28.
	p.replay = p.newServer("ROUTER", "DEALER", "REQ", "ROUTER")
	p.replay.serve = p.replay.serveReplays
	return p.replay.start(ctx, p.o.Config.ReplayEndpoint)
}

// newServer makes a socket that is not open. peers are the types that ZeroMQ allows at its
// other end.
func (p *Publisher) newServer(socket string, peers ...string) *server {
	return &server{p: p, socket: socket, peers: peers, conns: map[net.Conn]struct{}{},
		subs: map[*subscriber]struct{}{}}
}

// start listens at an endpoint, or connects to it and again when that ends.
//
// The goroutines are counted in Publisher.done, so that Close returns after the last of
// them.
func (s *server) start(ctx context.Context, text string) error {
	e, err := parseEndpoint(text, s.p.o.Rank, s.p.o.Config.Bind)
	if err != nil {
		return err
	}
	if !e.bind {
		s.dial = e
		s.p.done.Go(func() { s.connect(ctx) })
		return nil
	}
	// An error here is one of the configuration, such as a port in use: Start returns it. A
	// peer that cannot be reached is tried again instead.
	var lc net.ListenConfig
	if s.listener, err = lc.Listen(ctx, e.network, e.address); err != nil {
		return err
	}
	s.p.o.Logger.Info("publishing events", "socket", s.socket, "address", s.listener.Addr().String())
	s.p.done.Go(s.accept)
	return nil
}

// accept serves who connects. The handshake is the connection's own affair, so that a
// silent peer keeps no one waiting.
func (s *server) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of file descriptors, or a connection that was reset already.
			s.p.o.Logger.Warn("accepting a reader failed", "socket", s.socket, "error", err)
			// Without a pause an error that stays, such as too few file descriptors, would
			// take a whole CPU.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !s.add(c) {
			s.p.o.Logger.Warn("a reader is refused: there are as many as may be", "socket", s.socket,
				"readers", s.p.o.MaxReaders)
			_ = c.Close()
			continue
		}
		s.p.done.Go(func() { s.handle(c) })
	}
}

// connect connects to one reader at a time, with a pause after each that ends.
//
// The pause also follows a connection that was refused at once, so a reader that is not
// there costs four attempts a second.
func (s *server) connect(ctx context.Context) {
	var d net.Dialer
	for {
		c, err := d.DialContext(ctx, s.dial.network, s.dial.address)
		if err == nil && s.add(c) {
			s.handle(c)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// add notes a connection; false if there are too many, or the server has ended.
//
// ended is set under the same lock: a connection that is accepted while the server closes
// is closed here or there.
func (s *server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.conns) >= s.p.o.MaxReaders {
		if s.ended {
			_ = c.Close()
		}
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// handle serves one connection up to its end, on a goroutine of its own.
func (s *server) handle(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	// Subscriptions and requests are short.
	limits := zmtp.Limits{FrameBytes: 4096, Frames: 8, Timeout: s.p.o.Timeout}
	z, err := zmtp.Open(c, s.socket, s.peers, limits)
	if err != nil {
		s.p.o.Logger.Info("a reader failed in its handshake", "socket", s.socket, "error", err)
		return
	}
	s.serve(z)
}

// address is where a server listens; "" if it connects or is not there.
func (s *server) address() string {
	if s == nil || s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// close ends the server and all connections.
func (s *server) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.listener != nil {
		_ = s.listener.Close()
	}
	// A closed connection ends the read or write that its goroutine waits in.
	for c := range s.conns {
		_ = c.Close()
	}
}

// maxSubscriptions is how many topics one subscriber may ask for. Readers have one.
// Each batch is compared with all of them under the server's lock.
const maxSubscriptions = 256

// subscriber is a connection of the PUB socket.
//
// The queue decouples it from the publisher: it holds slices of the same bytes for all
// subscribers, so a full queue costs slice headers and not copies.
type subscriber struct {
	queue  chan []byte // messages as they go over the wire
	topics []string    // prefixes of topics; under the server's lock
}

// serveSubscriber has two goroutines for a connection: one writes what is queued, this one
// reads subscriptions. Only this one closes the queue, after the subscriber has left subs,
// as a send to a closed channel panics.
func (s *server) serveSubscriber(z *zmtp.Conn) {
	sub := &subscriber{queue: make(chan []byte, s.p.o.Config.HWM)}
	s.mu.Lock()
	s.subs[sub] = struct{}{}
	s.mu.Unlock()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for wire := range sub.queue {
			if z.Write(wire) != nil {
				// The reader below ends too, now that the connection is closed.
				_ = z.Close()
			}
		}
	}()
	for s.subscribe(z, sub) {
	}
	s.mu.Lock()
	delete(s.subs, sub)
	s.mu.Unlock()
	// No one sends to the queue any more. What waits in it is written in vain.
	_ = z.Close()
	close(sub.queue)
	<-written
}

// subscribe serves one message of a subscriber; false ends it.
//
// ZMTP 3.0 sends a subscription as a message: a byte, 1 or 0, and the prefix of topics.
func (s *server) subscribe(z *zmtp.Conn, sub *subscriber) bool {
	frames, err := z.Read()
	if err != nil {
		return false
	}
	if len(frames) != 1 || len(frames[0]) == 0 || frames[0][0] > 1 {
		return true // messages to a PUB socket have no meaning
	}
	topic := string(frames[0][1:])
	if frames[0][0] == 1 {
		return s.addTopic(sub, topic)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// ZeroMQ counts: a topic that was asked for twice stays until it is given up twice.
	if i := slices.Index(sub.topics, topic); i >= 0 {
		sub.topics = slices.Delete(sub.topics, i, i+1)
	}
	return true
}

// addTopic adds a subscription, and sends what the subscriber has missed if that is
// configured. The publisher is locked meanwhile, so that no batch comes in between.
func (s *server) addTopic(sub *subscriber, topic string) bool {
	s.p.attend(s.p.running)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.topics = append(sub.topics, topic)
	s.p.resume()
	if s.p.o.Config.SnapshotOnSubscribe && strings.HasPrefix(s.p.o.Config.Topic, topic) {
		payload, _ := s.p.encode(now(), s.p.everything())
		select {
		case sub.queue <- zmtp.AppendMessage(nil, []byte(s.p.o.Config.Topic),
			sequenceFrame(s.p.log.next-1), payload):
		default:
		}
	}
	// One over the limit ends the connection.
	return len(sub.topics) <= maxSubscriptions
}

// broadcast queues a batch for all who have subscribed to its topic. It does not wait:
// one whose queue is full misses the batch, and sees that by the next sequence.
//
// That is what a PUB socket of ZeroMQ does at its high-water mark. A reader finds what it
// has missed through the replay socket.
func (s *server) broadcast(topic string, b *sent) {
	if s == nil {
		return
	}
	// Encoded once for all subscribers.
	wire := zmtp.AppendMessage(nil, []byte(topic), sequenceFrame(b.sequence), b.payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subs {
		if !slices.ContainsFunc(sub.topics,
			func(prefix string) bool { return strings.HasPrefix(topic, prefix) }) {
			continue
		}
		select {
		case sub.queue <- wire:
		default:
		}
	}
}

// sequenceFrame writes a sequence as vLLM's publisher does: eight bytes, the highest first.
// Readers compare the numbers, so the order of the bytes is part of the protocol.
func sequenceFrame(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// serveReplays answers requests for what was published from a sequence on. Each
// connection is answered on its own goroutine, so a slow one keeps no one waiting.
func (s *server) serveReplays(z *zmtp.Conn) {
	for {
		frames, err := z.Read()
		if err != nil {
			return
		}
		// The identity, which is the first of the three frames that a ROUTER sees, is
		// not on the wire.
		if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
			// The reader waits for an answer that does not come; it may ask again.
			s.p.o.Logger.Info("a replay request is not understood", "frames", len(frames))
			continue
		}
		if s.p.sendReplay(z, binary.BigEndian.Uint64(frames[1])) != nil {
			return
		}
	}
}

// endSequence is the sequence of the message that ends a replay.
// It is −1 in 64 bits, as vLLM's publisher sends it.
const endSequence = 1<<64 - 1

// sendReplay answers a request: everything from start on, without a gap, and the end.
//
// The lock is held while the answer is put together and not while it is sent: a slow
// reader must not stop the publisher. The batches do not change any more, so they can be
// read without it.
func (p *Publisher) sendReplay(z *zmtp.Conn, start uint64) error {
	p.attend(p.running)
	p.mu.Lock()
	batches, whole := p.log.since(start)
	last := p.log.next - 1 // batch 0 is published before a socket is open
	var snapshot, empty []byte
	if !whole {
		at := now()
		snapshot, _ = p.encode(at, p.everything())
		empty, _ = p.encode(at, nil)
	}
	p.mu.Unlock()
	topic := p.o.Config.Topic
	// The empty frame in front is the delimiter that a REQ socket expects.
	send := func(topic string, sequence uint64, payload []byte) error {
		return z.Write(zmtp.AppendMessage(nil, nil, []byte(topic), sequenceFrame(sequence), payload))
	}
	if !whole {
		if err := sendEmpty(z, topic, start, last, empty); err != nil {
			return err
		}
		if err := send(topic, last, snapshot); err != nil {
			return err
		}
	}
	for _, b := range batches {
		if err := send(topic, b.sequence, b.payload); err != nil {
			return err
		}
	}
	return send("", endSequence, nil)
}

// sendEmpty sends empty batches with the sequences [start, end), many in one write.
//
// Readers count sequences one by one, and would take a number that is missing for a loss.
func sendEmpty(z *zmtp.Conn, topic string, start, end uint64, empty []byte) error {
	var wire []byte
	for n := start; n < end; n++ {
		wire = zmtp.AppendMessage(wire, nil, []byte(topic), sequenceFrame(n), empty)
		// A write a message would be a packet each; one write for all could be 600 KB for a reader
		// that asks for the start after 10,000 batches.
		if len(wire) > 1<<16 {
			if err := z.Write(wire); err != nil {
				return err
			}
			wire = wire[:0]
		}
	}
	if len(wire) == 0 {
		return nil
	}
	return z.Write(wire)
}
