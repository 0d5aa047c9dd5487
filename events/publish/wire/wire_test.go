package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

func enabled(o *Options) { o.Config.Enable = true }

var quiet = zmq4.WithLogger(stdlog.New(io.Discard, "", 0))

// subscribeTo makes a SUB socket of another implementation, whose messages come by a
// channel.
func subscribeTo(t *testing.T, h *host, topic string) <-chan zmq4.Msg {
	ctx, cancel := context.WithCancel(t.Context())
	sub := zmq4.NewSub(ctx, quiet)
	require.NoError(t, sub.Dial("tcp://"+h.p.pub.address()))
	require.NoError(t, sub.SetOption(zmq4.OptionSubscribe, topic))
	got, done := make(chan zmq4.Msg, 1000), make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := sub.Recv()
			if err != nil {
				return
			}
			got <- m
		}
	}()
	t.Cleanup(func() { cancel(); _ = sub.Close(); <-done })
	// A subscription has no answer.
	require.Eventually(t, func() bool {
		h.p.pub.mu.Lock()
		defer h.p.pub.mu.Unlock()
		for s := range h.p.pub.subs {
			if len(s.topics) > 0 {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
	return got
}

// replay asks for what was published from start on and returns it up to the end.
func replay(t *testing.T, h *host, start uint64) (list []zmq4.Msg) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dealer := zmq4.NewDealer(ctx, quiet)
	defer dealer.Close()
	require.NoError(t, dealer.Dial("tcp://"+h.p.replay.address()))
	require.NoError(t, dealer.SendMulti(zmq4.NewMsgFrom(nil, sequenceFrame(start))))
	for {
		m, err := dealer.Recv()
		require.NoError(t, err)
		require.Len(t, m.Frames, 4)
		require.Empty(t, m.Frames[0])
		if binary.BigEndian.Uint64(m.Frames[2]) == endSequence {
			assert.Empty(t, m.Frames[1])
			assert.Empty(t, m.Frames[3])
			return list
		}
		list = append(list, m)
	}
}

// What the engine would reuse of a prompt is what is published of it, and subscribers
// get each batch under the next sequence.
func TestSubscribersGetEachBatch(t *testing.T) {
	h := newHost(t, func(o *Options) { enabled(o); o.Config.Topic = "kv@1@m" })
	got := subscribeTo(t, h, "kv@")
	var prompts [][]messages.Token
	for range 60 {
		prompts = append(prompts, h.serve(messages.Namespace{}))
		for _, p := range prompts {
			engine, published := h.matched(messages.Namespace{}, p)
			require.Equal(t, engine, published)
		}
	}
	next := h.p.Next()
	require.Greater(t, next, uint64(20))
	for n := uint64(1); n < next; n++ { // batch 0 was before the subscription
		m := <-got
		require.Len(t, m.Frames, 3)
		assert.Equal(t, "kv@1@m", string(m.Frames[0]))
		assert.Equal(t, n, binary.BigEndian.Uint64(m.Frames[1]))
	}
	assert.Empty(t, got)
	list := replay(t, h, 0)
	require.Len(t, list, int(next))
	assert.Equal(t, "kv@1@m", string(list[3].Frames[1]))
	assert.Empty(t, replay(t, h, next), "nothing is newer")
}

// A subscriber gets all blocks at once if that is configured, under the latest sequence.
func TestASubscriberGetsASnapshot(t *testing.T) {
	h := newHost(t, func(o *Options) { enabled(o); o.Config.SnapshotOnSubscribe = true })
	for range 9 {
		h.serve(messages.Namespace{})
	}
	m := <-subscribeTo(t, h, "")
	assert.Equal(t, h.p.Next()-1, binary.BigEndian.Uint64(m.Frames[1]))
	want, _ := h.p.encode(0, h.p.everything())
	assert.Equal(t, want[10:], m.Frames[2][10:], "but for the time")
}

// A topic that no one asked for is not sent; two subscribers do not hinder each other.
func TestTopicsAreKeptApart(t *testing.T) {
	h := newHost(t, func(o *Options) { enabled(o); o.Config.Topic = "b" })
	a, b := subscribeTo(t, h, "a"), subscribeTo(t, h, "")
	require.Eventually(t,
		func() bool { h.p.pub.mu.Lock(); defer h.p.pub.mu.Unlock(); return len(h.p.pub.subs) == 2 },
		time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { h.p.Announce(); return len(b) > 0 }, time.Minute,
		time.Millisecond)
	assert.Empty(t, a)
}

// A replay from before the log is contiguous: empty batches, and all blocks under the
// latest sequence.
func TestAReplayFromBeforeTheLog(t *testing.T) {
	h := newHost(t, func(o *Options) { enabled(o); o.Config.BufferSteps = 3 })
	for range 40 {
		h.serve(messages.Namespace{})
	}
	next := h.p.Next()
	list := replay(t, h, 2)
	require.Len(t, list, int(next)-2)
	for i, m := range list {
		require.Equal(t, uint64(i+2), binary.BigEndian.Uint64(m.Frames[2]))
		if i < len(list)-1 {
			assert.Len(t, m.Frames[3], 12, "an empty batch")
		}
	}
	want, _ := h.p.encode(0, h.p.everything())
	assert.Equal(t, want[10:], list[len(list)-1].Frames[3][10:], "but for the time")
	assert.Len(t, replay(t, h, next-2), 2, "these are kept")
}

// Requests that are not understood are not answered and do no harm.
func TestRequestsThatAreNotUnderstood(t *testing.T) {
	h := newHost(t, enabled)
	dealer := zmq4.NewDealer(t.Context(), quiet)
	defer dealer.Close()
	require.NoError(t, dealer.Dial("tcp://"+h.p.replay.address()))
	require.NoError(t, dealer.SendMulti(zmq4.NewMsgFrom([]byte("x"), sequenceFrame(0))))
	require.NoError(t, dealer.SendMulti(zmq4.NewMsgFrom(nil, []byte("short"))))
	require.NoError(t, dealer.SendMulti(zmq4.NewMsgFrom(nil, sequenceFrame(1))))
	m, err := dealer.Recv()
	require.NoError(t, err)
	assert.Equal(t, uint64(endSequence), binary.BigEndian.Uint64(m.Frames[2]))
}

// A publisher can connect to a reader that listens.
func TestAPublisherThatConnects(t *testing.T) {
	sub := zmq4.NewSub(t.Context(), quiet)
	defer sub.Close()
	require.NoError(t, sub.Listen("tcp://127.0.0.1:0"))
	require.NoError(t, sub.SetOption(zmq4.OptionSubscribe, ""))
	bind := false
	h := newHost(t, func(o *Options) {
		enabled(o)
		o.Config.Endpoint, o.Config.ReplayEndpoint, o.Config.Bind = "tcp://"+sub.Addr().String(), "",
			&bind
	})
	got := make(chan struct{})
	go func() {
		if _, err := sub.Recv(); err == nil {
			close(got)
		}
	}()
	require.Eventually(t, func() bool {
		// The library sends what was subscribed before the connection to no one.
		_ = sub.SetOption(zmq4.OptionSubscribe, "")
		h.p.Announce()
		select {
		case <-got:
			return true
		default:
			return false
		}
	}, time.Minute, 10*time.Millisecond)
}

// There are no more readers than may be.
func TestReadersAreLimited(t *testing.T) {
	h := newHost(t, func(o *Options) { enabled(o); o.MaxReaders = 1 })
	server := httptest.NewServer(h.p)
	defer server.Close()
	first, err := http.Get(server.URL)
	require.NoError(t, err)
	defer first.Body.Close()
	second, err := http.Get(server.URL)
	require.NoError(t, err)
	defer second.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, second.StatusCode)
	post, err := http.Post(server.URL, "text/plain", nil)
	require.NoError(t, err)
	defer post.Body.Close()
	assert.Equal(t, http.StatusMethodNotAllowed, post.StatusCode)
}

// stream reads server-sent events.
type stream struct {
	t    *testing.T
	body *bufio.Reader
	all  strings.Builder
}

func (s *stream) next() []byte {
	for {
		line, err := s.body.ReadString('\n')
		require.NoError(s.t, err)
		s.all.WriteString(line)
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return []byte(data)
		}
	}
}

// Over HTTP everyone gets the blocks, at any time, and no tokens or salts.
func TestServerSentEvents(t *testing.T) {
	h := newHost(t, func(*Options) {})
	secret := messages.Namespace{Salt: "salt-of-a-tenant"}
	for range 5 {
		h.serve(messages.Namespace{})
		h.serve(secret)
	}
	server := httptest.NewServer(h.p)
	defer server.Close()
	response, err := http.Get(server.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	s, m := &stream{t: t, body: bufio.NewReader(response.Body)}, mirror{}
	m.follow(t, s.next())
	assert.Len(t, m, h.p.Blocks())
	for range 30 {
		h.serve(secret)
		h.serve(messages.Namespace{})
	}
	for {
		if b := m.follow(t, s.next()); b.Sequence == h.p.Next()-1 {
			break
		}
	}
	assert.Len(t, m, h.p.Blocks())
	text := s.all.String()
	assert.NotContains(t, text, "salt-of")
	assert.NotContains(t, text, "tokens")
	assert.Contains(t, text, `"salted":true`)
	names, err := events.Names(messages.Prefix{Namespace: secret,
		Tokens: make([]messages.Token, 4)}, 4)
	require.NoError(t, err)
	assert.NotContains(t, text, h.p.nameOf(binary.BigEndian.Uint64(names[0][8:]), false),
		"who knows the salt does not see who asked")
}

func TestTokensAreShownIfAskedFor(t *testing.T) {
	h := newHost(t, func(o *Options) { o.ShowTokens = true })
	h.serve(messages.Namespace{Salt: "s"})
	text, err := json.Marshal(h.p.told(&sent{changes: h.p.everything()}))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"salt":"s"`)
	assert.Contains(t, string(text), `"tokens":[0,0,0,0`)
}

// The discovery answer says where the sockets are.
func TestServerInfo(t *testing.T) {
	h := newHost(t, func(o *Options) { enabled(o); o.Config.Topic = "t" })
	get := func() (answer struct {
		Events map[string]any `json:"kv_events"`
	}) {
		w := httptest.NewRecorder()
		h.p.ServerInfo().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/server_info", nil))
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		return answer
	}
	_, port := splitPort(h.p.pub.address())
	_, replayPort := splitPort(h.p.replay.address())
	assert.Equal(t, map[string]any{
		"publisher": "zmq", "endpoint_host": "127.0.0.1", "endpoint_port_base": float64(port),
		"topic": "t", "block_size": 4.0,
		"dp_size": 1.0, "replay_endpoint_port_base": float64(replayPort),
	}, get().Events)
	h = newHost(t, func(*Options) {})
	assert.Nil(t, get().Events)
}

// Polled events begin with created; an answer has what came since the last one, and
// the oldest go when no one asks.
func TestPolledEvents(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Polled, o.WindowSize = 5, 256 })
	poll := func() (list []struct {
		ID   int `json:"event_id"`
		Data struct {
			Type   string `json:"type"`
			Levels []int  `json:"num_blocks_per_cache_level"`
		} `json:"data"`
		Window int `json:"window_size"`
	}) {
		w := httptest.NewRecorder()
		h.p.PolledHandler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/kv_cache_events", nil))
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
		return list
	}
	h.serve(messages.Namespace{})
	list := poll()
	require.Len(t, list, 2)
	assert.Equal(t, "created", list[0].Data.Type)
	assert.Equal(t, []int{24, 12}, list[0].Data.Levels)
	assert.Equal(t, 256, list[0].Window)
	assert.Equal(t, "stored", list[1].Data.Type)
	assert.Empty(t, poll())
	for range 40 {
		h.serve(messages.Namespace{})
	}
	list = poll()
	require.Len(t, list, 5)
	assert.Greater(t, list[0].ID, 2)
}

// Events that were lost are made up for by a snapshot.
func TestLostEvents(t *testing.T) {
	h := newHost(t, enabled)
	for range 5 {
		h.serve(messages.Namespace{})
	}
	source := h.p.o.Source
	h.p.o.Source = lossy{source}
	tokens := h.serve(messages.Namespace{})
	engine, published := h.matched(messages.Namespace{}, tokens)
	assert.Equal(t, engine, published)
}

// lossy loses all events.
type lossy struct{ Source }

func (l lossy) Events(ctx context.Context, r kvevents.ReaderID) (kvevents.EventBatch, error) {
	batch, err := l.Source.Events(ctx, r)
	return kvevents.EventBatch{Lost: uint64(len(batch.Events))}, err
}

// The publisher reads by itself, and ends with the engine.
func TestThePublisherPolls(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Interval = time.Millisecond })
	s := h.serve(messages.Namespace{})
	require.Eventually(t, func() bool {
		engine, published := h.matched(messages.Namespace{}, s)
		return engine == published
	}, time.Minute, time.Millisecond)
	_, err := h.engine.Close(t.Context())
	require.NoError(t, err)
	h.p.done.Wait()
}

// A subscriber that does not read misses batches and holds no one up: neither the
// publisher nor other subscribers.
func TestASlowSubscriberMissesBatches(t *testing.T) {
	h := newHost(t, enabled)
	slow, quick := &subscriber{queue: make(chan []byte, 1), topics: []string{""}},
		&subscriber{queue: make(chan []byte, 9), topics: []string{""}}
	h.p.pub.mu.Lock()
	h.p.pub.subs[slow], h.p.pub.subs[quick] = struct{}{}, struct{}{}
	h.p.pub.mu.Unlock()
	for range 3 {
		h.p.Announce()
	}
	assert.Len(t, slow.queue, 1)
	assert.Len(t, quick.queue, 3)
}
