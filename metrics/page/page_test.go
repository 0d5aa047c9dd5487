package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine answers with fixed numbers, or an error.
type engine struct{ err error }

func (e engine) Do(_ context.Context, request messages.Request) error {
	switch m := request.(type) {
	case *inspect.ReadStats:
		m.Stats = stats()
	case *inspect.ReadOverview:
		m.Overview = overview(m.Limits)
	case *messages.Lookup:
		m.Found = messages.Found{MatchedTokens: len(m.Prefix.Tokens) / 2, PrimaryTokens: 1,
			SecondaryTokens: len(m.Prefix.Tokens)/2 - 1}
		m.MissReason = messages.ReasonEvicted
		if len(m.Prefix.Tokens) > 100 {
			m.Err = &messages.Refusal{Code: messages.ErrTooLong, Message: "too long"}
		}
	}
	return e.err
}

// overview is a picture of one pool and a tree of a trunk with two branches.
func overview(l inspect.OverviewLimits) inspect.Overview {
	var o inspect.Overview
	if l.Pages > 0 {
		p := inspect.PoolOverview{Secondary: []inspect.PageSample{{State: inspect.PageCopy,
			Priority: 35}}}
		for i := range 600 {
			s := inspect.PageSample{State: inspect.PageState(i * 3 / 600),
				Priority: messages.Priority(i / 6), Age: uint64(1) << (i % 12)}
			p.Primary = append(p.Primary, s)
		}
		o.Pools = []inspect.PoolOverview{p}
	}
	if l.Nodes > 0 {
		o.Nodes = []inspect.PrefixNode{
			{Parent: -1, Below: 1000}, {Parent: 0, Blocks: 100, Below: 1000, Stamp: 9},
			{Parent: 1, Depth: 100, Blocks: 600, Below: 600, Stamp: 9},
			{Parent: 1, Depth: 100, Blocks: 300, Below: 300, Stamp: 7},
		}
		o.Counted, o.Complete = 4, true
	}
	return o
}

func stats() inspect.Stats {
	return inspect.Stats{
		Requests: 1234, PromptTokens: 80000, ReusedTokens: 60000, ThrashTokens: 12000, Sequences: 7,
		Restarts: 2,
		Pools: []inspect.PoolStats{{
			Name: "wfullh8", Primary: inspect.TierPages{Total: 1_000_000, Used: 400_000, Cached: 500_000,
				Free: 100_000},
			Secondary:    inspect.TierPages{Total: 50, Cached: 20, Free: 30},
			PoolCounters: inspect.PoolCounters{Evicted: 31, Offloaded: 21, Onboarded: 11, Dropped: 5},
		}},
	}
}

// serve serves a page and returns its address.
func serve(t *testing.T, e engine) string {
	text := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, s)
		})
	}
	r := &Recorder{}
	for i := range 40 {
		at := float64(i) / 100
		r.Copied(Transfer{Stream: []string{"offload", "onboard"}[i%2], Start: at, End: at + .008,
			Copies: 3, Bytes: 1 << 20})
		r.Observe(t.Context(), &messages.Admit{}, time.Now().Add(-time.Duration(i)*time.Millisecond), nil)
	}
	p := New(Options{
		Title: "m", Source: e, Pools: []windows.Pool{{Name: "wfullh8"}}, Recorder: r,
		Metrics: text("metrics"), Events: text("events"), Pprof: text("pprof"),
	})
	at, stop, err := Serve("127.0.0.1:0", p)
	require.NoError(t, err)
	t.Cleanup(stop)
	return "http://" + at.String()
}

func get(t *testing.T, url string) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

func TestWhatIsServed(t *testing.T) {
	at := serve(t, engine{})
	for path, want := range map[string]string{"/": "<!doctype html>", "/metrics": "metrics",
		"/events": "events", "/healthz": "ok", "/stats": `"requests":1234`,
		"/debug/pprof/heap": "pprof", "/page.js": "use strict", "/page.css": ":root"} {
		status, body := get(t, at+path)
		assert.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, body, want, path)
	}
	status, _ := get(t, at+"/other")
	assert.Equal(t, http.StatusNotFound, status)
}

// The page has nothing from elsewhere.
func TestThePageIsWhole(t *testing.T) {
	files, err := assets.ReadDir("assets")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		text, err := assets.ReadFile("assets/" + f.Name())
		require.NoError(t, err)
		assert.NotContains(t, string(text), "//www")
		assert.NotContains(t, string(text), "http:")
		assert.NotContains(t, string(text), "https:")
	}
}

func TestAnEngineThatDoesNotAnswer(t *testing.T) {
	at := serve(t, engine{errors.New("down")})
	for _, path := range []string{"/healthz", "/stats"} {
		status, body := get(t, at+path)
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.NotContains(t, body, "down", "errors are not for strangers")
	}
	status, body := get(t, at+"/live")
	assert.Equal(t, http.StatusOK, status)
	assert.Empty(t, body)
}

// The stream has the numbers again and again.
func TestLive(t *testing.T) {
	at := serve(t, engine{})
	r, err := http.Get(at + "/live")
	require.NoError(t, err)
	lines := bufio.NewReader(r.Body)
	for range 2 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		var a Answer
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &a))
		assert.Equal(t, int64(1234), a.Requests)
		assert.Equal(t, []int{400_000, 500_000, 100_000}, []int{a.Pools[0].Primary.Used,
			a.Pools[0].Primary.Cached, a.Pools[0].Primary.Free})
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, r.Body.Close())
}

// A port alone is one of the loopback interface.
func TestServeListensOnLoopback(t *testing.T) {
	at, stop, err := Serve(":0", http.NotFoundHandler())
	require.NoError(t, err)
	defer stop()
	assert.True(t, strings.HasPrefix(at.String(), "127.0.0.1:"), at)
	_, _, err = Serve("nonsense", nil)
	require.Error(t, err)
}

// An address without a host is on the loopback interface.
func TestListenIsLocal(t *testing.T) {
	for address, local := range map[string]bool{":0": true, "127.0.0.1:0": true, "0.0.0.0:0": false} {
		l, err := Listen(t.Context(), address)
		require.NoError(t, err)
		assert.Equal(t, local, l.Addr().(*net.TCPAddr).IP.IsLoopback(), address)
		require.NoError(t, l.Close())
	}
	_, err := Listen(t.Context(), "8080")
	require.Error(t, err)
}
