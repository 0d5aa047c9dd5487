package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a daemon that runs, and what it logs.
type served struct {
	t      testing.TB
	d      *Daemon
	socket string
	mu     sync.Mutex
	log    bytes.Buffer
	stop   func()
}

func (s *served) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *served) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// serve runs a daemon until the test ends, or stop is called.
func serve(t testing.TB, change func(*Config)) *served {
	s := &served{t: t, socket: filepath.Join(t.TempDir(), "s")}
	c := Defaults()
	c.Socket, c.MemoryBytes = s.socket, 4<<20
	c.Log = slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if change != nil {
		change(&c)
	}
	var err error
	s.d, err = Open(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.d.Serve(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(30 * time.Second):
			t.Error("the daemon does not end")
		}
	})
	t.Cleanup(s.stop)
	return s
}

const blockTokens = 16

// opening is a model of two groups: two layers of full attention, one with a window.
func opening() *wire.Open {
	return &wire.Open{Version: wire.Version, Name: "test", Fingerprint: "weights",
		BlockTokens: blockTokens, MaxTokens: 4096,
		Groups: []*wire.Group{
			{Name: "full", LayerBytes: []uint64{1024, 1024}},
			{Name: "window", Window: 64, LayerBytes: []uint64{512}},
		}}
}

// client is a session with the memory of its pools.
type client struct {
	*wire.Client
	t      testing.TB
	memory [][]byte
}

func (s *served) open(o *wire.Open) *client {
	c, err := wire.Dial(s.socket, o)
	require.NoError(s.t, err)
	k := &client{Client: c, t: s.t}
	for _, p := range c.Opened.Pools {
		memory, err := p.Map()
		require.NoError(s.t, err)
		k.memory = append(k.memory, memory)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return k
}

func (c *client) step(s *wire.Step) *wire.Stepped {
	c.t.Helper()
	out, err := c.Step(s)
	require.NoError(c.t, err)
	return out
}

// tokensFrom are n tokens that begin with one that no other prompt begins with.
func tokensFrom(first int32, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = first + int32(i)
	}
	return list
}

func prompt(tokens []int32) *wire.Prompt { return &wire.Prompt{Tokens: wire.PackTokens(tokens)} }

func salted(p *wire.Prompt, salt string) *wire.Prompt {
	p.Salt = salt
	return p
}

// page is the memory of a page.
func (c *client) page(pool int, page int32) []byte {
	n := int(c.Opened.Pools[pool].PageBytes)
	return c.memory[pool][int(page)*n : (int(page)+1)*n]
}

// contents are the bytes of a block that a test writes.
func contents(pool, block int, tokens []int32, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(int(tokens[block*blockTokens])*31 + pool*7 + block*3 + i)
	}
	return out
}

// reserve reserves blocks and fails on a refusal.
func (c *client) reserve(r *wire.Reserve) *wire.Reserved {
	c.t.Helper()
	out := c.step(&wire.Step{Reserves: []*wire.Reserve{r}}).Reserves[0]
	require.Nil(c.t, out.Error)
	return out
}

// fill writes all pages of a reservation.
func (c *client) fill(r *wire.Reserved, tokens []int32) {
	for p := range r.Pages {
		for b, page := range wire.UnpackPages(r.Pages[p]) {
			if page >= 0 {
				copy(c.page(p, page), contents(p, b, tokens, len(c.page(p, page))))
			}
		}
	}
}

// store computes whole blocks of a prompt: reserve, write, written, release.
func (c *client) store(p *wire.Prompt, tokens []int32) {
	c.t.Helper()
	r := c.reserve(&wire.Reserve{Prompt: p})
	if r.Handle == 0 {
		return
	}
	c.fill(r, tokens)
	out := c.step(&wire.Step{Written: []*wire.Written{{Handle: r.Handle, Tokens: uint32(len(tokens))}},
		Releases: []uint64{r.Handle}})
	require.Nil(c.t, out.Written[0].Error)
	require.Nil(c.t, out.Releases[0].Error)
}

// match matches a prompt and fails on a refusal.
func (c *client) match(p *wire.Prompt) *wire.Matched {
	c.t.Helper()
	out := c.step(&wire.Step{Matches: []*wire.Match{{Prompt: p}}}).Matches[0]
	require.Nil(c.t, out.Error)
	return out
}

// holds verifies the bytes of a match.
func (c *client) holds(m *wire.Matched, tokens []int32) {
	c.t.Helper()
	for p := range m.Pages {
		pages := wire.UnpackPages(m.Pages[p])
		require.Len(c.t, pages, int(m.Tokens)/blockTokens)
		for b, page := range pages {
			if page < 0 {
				require.NotZero(c.t, c.Opened.Pools[p].Window, "a block of full attention has no page")
				continue
			}
			require.Equal(c.t, contents(p, b, tokens, len(c.page(p, page))), c.page(p, page),
				"pool %d block %d", p, b)
		}
	}
}

// code is the code of a refusal.
func code(e *wire.Error) string { return e.GetCode() }

// eventually waits for what other goroutines do.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	assert.Eventually(t, holds, 10*time.Second, 2*time.Millisecond, what)
}

// used is the number of pages that sequences hold.
func (c *client) used() (pages int) {
	c.t.Helper()
	answer, err := c.Do(&wire.Request{Op: &wire.Request_Stats{Stats: &wire.StatsRequest{}}})
	require.NoError(c.t, err)
	var stats kvactor.Stats
	require.NoError(c.t, json.Unmarshal([]byte(answer.GetStats().GetJson()), &stats))
	for _, p := range stats.Pools {
		pages += p.Primary.Used
	}
	return pages
}
