package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/messages"
)

// follower is a reader of server-sent events.
//
// gone is closed and queue is not: the publisher may offer a batch in the moment in which
// the follower ends.
type follower struct {
	// queue is written under Publisher.mu only, so batches are in the order of sequences.
	queue chan *sent
	once  sync.Once
	gone  chan struct{}
}

// offer queues a batch; a follower that does not keep up is ended, and begins again
// from a snapshot when it comes back.
func (f *follower) offer(s *sent) {
	select {
	case f.queue <- s:
	default:
		f.end()
	}
}

// end may be called by the publisher and by Close, so it closes once.
func (f *follower) end() { f.once.Do(func() { close(f.gone) }) }

// followerQueue is how many batches wait for a follower: some seconds at the default
// interval.
const followerQueue = 256

// follow adds a follower and returns what it must be told first.
//
// The snapshot is made and the follower added under one lock, so no batch is missed
// between them and none comes twice.
func (p *Publisher) follow() (f *follower, first *sent, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.followers) >= p.o.MaxReaders {
		return nil, nil, false
	}
	// The sequence of the snapshot is that of the newest batch, whose changes it includes.
	f = &follower{queue: make(chan *sent, followerQueue), gone: make(chan struct{})}
	p.followers[f] = struct{}{}
	p.resume()
	return f, &sent{sequence: p.log.next - 1, time: now(), changes: p.everything()}, true
}

// unfollow is called when the request has ended, by its own goroutine.
func (p *Publisher) unfollow(f *follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.followers, f)
}

// ServeHTTP answers with server-sent events: a snapshot, and then each batch as it is
// published. One event is one batch in JSON, with the sequence as its id.
//
//	curl -N http://127.0.0.1:8080/events
//
// Each write has a deadline of its own. The server's write timeout would end every stream,
// as it counts from the header of the request (net/http).
func (p *Publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	p.attend(r.Context())
	f, first, ok := p.follow()
	if !ok {
		http.Error(w, "too many readers", http.StatusServiceUnavailable)
		return
	}
	defer p.unfollow(f)
	w.Header().Set("Content-Type", "text/event-stream")
	// A proxy must not keep the stream: it does not end.
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for batch := first; ; {
		text, err := json.Marshal(p.told(batch))
		if err != nil {
			return
		}
		// A connection without deadlines is one of a test.
		_ = out.SetWriteDeadline(time.Now().Add(p.o.Timeout))
		// JSON of encoding/json has no line breaks, which would end the data field. Each event is
		// flushed, because the next one may be minutes away.
		if _, err = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", batch.sequence, text); err != nil ||
			out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		// The queue was full. The stream ends here, and a browser connects again by itself.
		case <-f.gone:
			return
		case batch = <-f.queue:
		}
	}
}

// toldBatch is a batch as people are told it.
// Time is in seconds since 1970, Sequence that of the ZeroMQ batch with the same changes.
type toldBatch struct {
	Sequence uint64      `json:"sequence"`
	Time     float64     `json:"time"`
	Events   []toldEvent `json:"events"`
}

// toldEvent is one change. Names are texts, since 64-bit numbers lose digits in JavaScript.
type toldEvent struct {
	Type    string   `json:"type"`
	Tier    string   `json:"tier,omitempty"`
	OldTier string   `json:"old_tier,omitempty"`
	Parent  string   `json:"parent,omitempty"`
	Blocks  []string `json:"blocks,omitempty"`
	LoRA    string   `json:"lora,omitempty"`
	Salted  bool     `json:"salted,omitempty"`
	// A pointer, since 0 is a priority.
	Priority  *int `json:"priority,omitempty"`
	Primary   int  `json:"primary_pages,omitempty"`
	Secondary int  `json:"secondary_pages,omitempty"`

	Salt   string           `json:"salt,omitempty"`
	Tokens []messages.Token `json:"tokens,omitempty"`
}

// kinds are the words of the stream, which stay when a constant is renamed.
var kinds = map[publish.ChangeKind]string{
	publish.Stored: "stored", publish.Removed: "removed", publish.TierChanged: "moved",
	publish.PriorityChanged: "priority",
	publish.Cleared:         "cleared", publish.Created: "created",
}

// told says a batch in JSON. Salts and tokens are left out unless ShowTokens is set: both
// are prompts or secrets of tenants.
func (p *Publisher) told(s *sent) toldBatch {
	b := toldBatch{Sequence: s.sequence, Time: s.time, Events: make([]toldEvent, 0, len(s.changes))}
	for i := range s.changes {
		c := &s.changes[i]
		e := toldEvent{Type: kinds[c.Kind], LoRA: c.Namespace.LoRA, Primary: c.Pages.Primary,
			Secondary: c.Pages.Secondary}
		if len(c.Blocks) > 0 {
			e.Tier = c.Tier.String()
		}
		// The parent is in the namespace of the change, so its name is hidden if that is salted.
		if c.HasParent {
			e.Parent = p.nameOf(c.Parent, c.Namespace.Salt != "")
		}
		for j := range c.Blocks {
			e.Blocks = append(e.Blocks, p.nameOf(c.Blocks[j].Name, c.Blocks[j].Salted))
			e.Salted = e.Salted || c.Blocks[j].Salted
		}
		switch c.Kind {
		case publish.TierChanged:
			e.OldTier = c.OldTier.String()
		case publish.PriorityChanged:
			// The view makes a change for each priority, so all blocks of it have the same.
			priority := int(c.Blocks[0].Priority)
			e.Priority = &priority
		case publish.Stored:
			if p.o.ShowTokens {
				e.Salt = c.Namespace.Salt
				for j := range c.Blocks {
					e.Tokens = append(e.Tokens, c.Blocks[j].Tokens...)
				}
			}
		case publish.Removed, publish.Cleared, publish.Created:
		}
		b.Events = append(b.Events, e)
	}
	return b
}

// nameOf writes a block's name. That of a salted block is hashed with a key: who
// knows the salt and guesses the prompt could find out by the name that it was asked.
func (p *Publisher) nameOf(name uint64, salted bool) string {
	plain := sequenceFrame(name)
	if !salted || p.o.ShowTokens {
		return hex.EncodeToString(plain)
	}
	h := hmac.New(sha256.New, p.key[:])
	_, _ = h.Write(plain) // never fails
	// Eight bytes, like a plain name: a reader that keeps names needs no case for it.
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// ServerInfo answers where events can be had, as SGLang's /server_info does.
// The replay port is there only if there is a replay endpoint. Without sockets kv_events is
// null.
func (p *Publisher) ServerInfo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		type kvEvents struct {
			Publisher  string `json:"publisher"`
			Host       string `json:"endpoint_host"`
			Port       int    `json:"endpoint_port_base"`
			Topic      string `json:"topic"`
			BlockSize  int    `json:"block_size"`
			DPSize     int    `json:"dp_size"`
			ReplayPort int    `json:"replay_endpoint_port_base,omitempty"`
		}
		info := struct {
			Events *kvEvents `json:"kv_events"`
		}{}
		if p.pub != nil {
			host, port := splitPort(p.pub.address())
			_, replay := splitPort(p.replay.address())
			info.Events = &kvEvents{"zmq", host, port, p.o.Config.Topic, p.TokensPerBlock(), 1, replay}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(info)
	})
}

// TokensPerBlock is the number of tokens of each published block.
func (p *Publisher) TokensPerBlock() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view.TokensPerBlock()
}

// splitPort splits an address of TCP; 0 if it is not one.
// An address of a unix socket has no port.
func splitPort(address string) (string, int) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0
	}
	port, _ := strconv.Atoi(text)
	return host, port
}

// PolledHandler answers with the polled events since the last answer, as
// TensorRT-LLM's server does at /kv_cache_events. They have tokens and salts.
// Events that no one polls are dropped, the oldest first, beyond Options.Polled.
func (p *Publisher) PolledHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		// A poll takes the list: two pollers would each get a part of it, as with TensorRT-LLM.
		list := p.polled
		p.polled = nil
		p.mu.Unlock()
		// An empty list and not null in JSON.
		if list == nil {
			list = []publish.PolledEvent{}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	})
}
