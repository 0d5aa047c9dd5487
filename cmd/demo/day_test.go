package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/internal/storeurl"
	"github.com/kvactor/kvactor/offloader/stores"
)

// A day in the life of demo serve: clients come back in turns, with more than the cache holds,
// while what operators meet happens. Every prompt has one answer all day, and at the end of each
// process the counters are what its clients saw.
func TestADayInTheLife(t *testing.T) {
	clients := &regulars{answers: map[string]string{}}
	t.Run("redis is killed and comes back, SIGTERM", clients.morning)
	t.Run("disk full, restart", clients.afternoon)
	t.Run("adapters and weights change", clients.evening)
}

// regulars are clients that come back all day. Of one server c is what they saw.
type regulars struct {
	mu      sync.Mutex
	answers map[string]string // by prompt
}

// dayFlags are those of a server that has pages for a third of its clients.
func dayFlags() []string {
	return []string{
		"--model", "tiny", "--listen", "127.0.0.1:0", "--pages", "40", "--host-pages", "24", "--max-len",
		"256",
		"--running", "4", "--aliases", "vllm,trtllm", "--allow-reset",
	}
}

// prompt is that of a client in a turn: what it said before, and more. The beginning is shared.
func (*regulars) prompt(client, turn int) []int {
	tokens := make([]int, 48+4*turn)
	for i := range tokens {
		switch {
		case i < 16:
			tokens[i] = 9 + i%5
		default:
			tokens[i] = 5 + (client*131+i*i*7)%600
		}
	}
	return tokens
}

// visit has clients come in turn, some at a time. Each prompt is answered as it always was.
func (r *regulars) visit(t *testing.T, url string, c *seen, clients, turns int) {
	for turn := range turns {
		var group sync.WaitGroup
		slots := make(chan struct{}, 8)
		for client := range clients {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				prompt := r.prompt(client, turn)
				text := c.complete(t, url, map[string]any{
					"model": "kvactor-tiny", "prompt": prompt, "max_tokens": 2, "temperature": 0,
					"ignore_eos": true, "return_token_ids": true,
				})
				r.hold(t, fmt.Sprint(prompt), text)
			})
		}
		group.Wait()
	}
}

// hold holds that a prompt has the answer that it had.
func (r *regulars) hold(t *testing.T, prompt, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, known := r.answers[prompt]; known {
		assert.Equal(t, before, answer, "the answer depends on what is cached")
	}
	r.answers[prompt] = answer
}

// redis is a server of Redis that tests kill: the program, or else miniredis.
type redis struct {
	t       *testing.T
	address string
	process *exec.Cmd
	inside  *miniredis.Miniredis
}

func startRedis(t *testing.T) *redis {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &redis{t: t, address: l.Addr().String()}
	require.NoError(t, l.Close())
	r.start()
	t.Cleanup(r.kill)
	return r
}

// start starts the server, empty.
func (r *redis) start() {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		r.inside = miniredis.NewMiniRedis()
		require.NoError(r.t, r.inside.StartAddr(r.address))
		return
	}
	_, port, err := net.SplitHostPort(r.address)
	require.NoError(r.t, err)
	r.process = exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", r.t.TempDir())
	require.NoError(r.t, r.process.Start())
	require.Eventually(r.t, func() bool {
		c, err := net.Dial("tcp", r.address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond)
}

// kill kills the server, once.
func (r *redis) kill() {
	switch {
	case r.inside != nil:
		r.inside.Close()
		r.inside = nil
	case r.process != nil:
		assert.NoError(r.t, r.process.Process.Kill())
		_ = r.process.Wait() // it was killed
		r.process = nil
	}
}

// child is demo serve in a process of its own.
type child struct {
	process *exec.Cmd
	url     string
	errs    *notes
}

func startChild(t *testing.T, args ...string) *child {
	c := &child{process: exec.CommandContext(t.Context(), os.Args[0]), errs: &notes{}}
	c.process.Env = append(os.Environ(), asDemo+"="+strings.Join(append([]string{"serve"}, args...),
		"\n"))
	c.process.Stderr = c.errs
	require.NoError(t, c.process.Start())
	address := regexp.MustCompile(`http://\S+`)
	require.Eventually(t, func() bool { return address.MatchString(c.errs.text()) }, time.Minute,
		time.Millisecond, "%s", c.errs)
	c.url = address.FindString(c.errs.text())
	return c
}

// morning is a server with Redis for its store, which is killed and comes back. Then it gets
// SIGTERM while it answers, and what runs is answered. Another one begins with what is stored.
func (r *regulars) morning(t *testing.T) {
	store := startRedis(t)
	args := append(dayFlags(), "--store", "valkey://"+store.address)
	server, c := startChild(t, args...), &seen{}
	r.visit(t, server.url, c, 12, 2)
	store.kill()
	r.visit(t, server.url, c, 24, 2)
	m := settled(t, server.url)
	assert.Positive(t, m.sum("kvactor_store_breaker_opened_total"))
	assert.Positive(t, m.sum("kvactor_store_dropped_total"))
	before := m.sum("kvactor_store_saved_objects_total")
	store.start()
	require.Eventually(t,
		func() bool { return scrape(t, server.url).sum("kvactor_store_breaker_open") == 0 }, time.Minute,
		20*time.Millisecond)
	reset(t, server.url) // what is in memory only is not saved again
	r.visit(t, server.url, c, 24, 1)
	m = settled(t, server.url)
	assert.Greater(t, m.sum("kvactor_store_saved_objects_total"), before)
	holdDay(t, m, c)

	long, err := http.Post(server.url+"/completions", "", strings.NewReader(
		`{"model":"kvactor-tiny","prompt":"a","stream":true,"max_tokens":200,"ignore_eos":true}`))
	require.NoError(t, err)
	_, err = io.ReadFull(long.Body, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, server.process.Process.Signal(syscall.SIGTERM))
	text, err := io.ReadAll(long.Body)
	require.NoError(t, err)
	require.NoError(t, long.Body.Close())
	assert.Contains(t, string(text), "[DONE]")
	require.NoError(t, server.process.Wait(), server.errs.text())
	assert.Contains(t, server.errs.text(), "stopped")

	again, after := startChild(t, args...), &seen{}
	r.visit(t, again.url, after, 1, 1)
	assert.Equal(t, 47, after.cached, "the first prompt is fetched from the store")
	m = settled(t, again.url)
	assert.Positive(t, m.sum("kvactor_store_fetched_objects_total"))
	holdDay(t, m, after)
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, again.process.Process.Signal(syscall.SIGTERM))
	require.NoError(t, again.process.Wait(), again.errs.text())
}

// reset empties the cache, running requests included.
func reset(t *testing.T, url string) {
	operate(t, url, "/reset_prefix_cache?reset_running_requests=true", "")
}

// operate asks for one of the operations of --allow-reset.
func operate(t *testing.T, url, path, body string) {
	answer, err := http.Post(strings.TrimSuffix(url, "/v1")+path, "", strings.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, 200, answer.StatusCode)
}

// disk is a store on a disk that may be full.
type disk struct {
	stores.Store
	full atomic.Bool
}

// Put fails while the disk is full.
func (d *disk) Put(ctx context.Context, objects []stores.Object) error {
	if d.full.Load() {
		return &os.PathError{Op: "write", Path: "object", Err: syscall.ENOSPC}
	}
	return d.Store.Put(ctx, objects)
}

// started is a service that runs in this process.
type started struct {
	*service
	url  string
	errs *notes
	stop func()
}

// startDay starts a server of the day on a store; nil: without one.
func startDay(t *testing.T, d *disk) *started {
	f := &serveFlags{
		model: "tiny", listen: "127.0.0.1:0", timeout: time.Minute, grace: time.Minute, reset: true,
	}
	f.config.Pages, f.config.HostPages, f.config.TokensPerBlock, f.config.Chunk, f.config.MaxLen = 40,
		24, 16, 64, 256
	f.limits = scheduler.Config{Running: 4, Waiting: 256, StepTokens: 256}
	f.watch.Aliases = []string{"vllm", "trtllm"}
	if d != nil {
		f.config.Fetch = fetchTime
		f.config.Options = []actors.Option{actors.WithStore(actors.StoreConfig{
			Store: d, Model: "tiny", Save: actors.SaveOnCommit, BreakerPause: 10 * time.Millisecond,
		})}
	}
	s := &started{errs: &notes{}}
	var err error
	s.service, err = openService(t.Context(), f, s.errs)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, s.errs) }()
	s.url = fmt.Sprintf("http://%s/v1", s.listener.Addr())
	s.stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(s.stop)
	return s
}

// afternoon is a server whose disk is full, and has room again. Another one begins with what is
// stored.
func (r *regulars) afternoon(t *testing.T) {
	d := &disk{Store: openFolder(t)}
	d.full.Store(true)
	s, c := startDay(t, d), &seen{}
	r.visit(t, s.url, c, 12, 2)
	m := settled(t, s.url)
	assert.Positive(t, m.sum("kvactor_store_errors_total"))
	assert.Positive(t, m.sum("kvactor_store_dropped_total"))
	assert.Zero(t, m.sum("kvactor_store_saved_objects_total"))
	d.full.Store(false)
	require.Eventually(t,
		func() bool { return scrape(t, s.url).sum("kvactor_store_breaker_open") == 0 }, time.Minute,
		20*time.Millisecond)
	reset(t, s.url)
	r.visit(t, s.url, c, 12, 3)
	m = settled(t, s.url)
	assert.Positive(t, m.sum("kvactor_store_saved_objects_total"))
	holdDay(t, m, c)
	s.stop()
	assert.Contains(t, s.errs.text(), "stopped")

	again, after := startDay(t, d), &seen{}
	r.visit(t, again.url, after, 1, 1)
	assert.Equal(t, 47, after.cached, "the first prompt is fetched from the store")
	holdDay(t, settled(t, again.url), after)
	again.stop()
}

// openFolder opens a folder as a store.
func openFolder(t *testing.T) stores.Store {
	store, err := storeurl.Open(t.Context(), "file://"+t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return store
}

// evening is a server without a store under load while an adapter is loaded again under its name,
// twice, and the weights are updated.
func (r *regulars) evening(t *testing.T) {
	s, c := startDay(t, nil), &seen{}
	engine := s.runner.Engine
	var load sync.WaitGroup
	turns := 11 // 264 requests: the engine notices after 256 that the cache is too small
	if testing.Short() {
		turns = 3
	}
	load.Go(func() { r.visit(t, s.url, c, 24, turns) })
	for range 2 {
		adapted(t, engine, c)
		operate(t, s.url, "/invalidate_prefix_cache", `{"lora_name":"a"}`)
		assert.Zero(t, matched(t, engine, "a"), "the adapter is another one")
	}
	for _, epoch := range []string{"2", "3"} {
		adapted(t, engine, c)
		operate(t, s.url, "/set_weights", `{"epoch":"`+epoch+`"}`)
		assert.Zero(t, matched(t, engine, "a"), "the weights are others")
	}
	load.Wait()
	m := settled(t, s.url)
	holdDay(t, m, c)
	assert.InDelta(t, 2, m.sum("kvactor_resets_total", "weights"), 0)
	assert.InDelta(t, 2, m.sum("kvactor_invalidations_total"), 0)
	assert.InDelta(t, 2*5, m.sum("kvactor_invalidated_blocks_total"), 0)
	assert.InDelta(t, 1, m.sum("kvactor_weights_info", "3"), 0)
	assert.Positive(t, m.sum("kvactor_thrash_tokens_total"))
	if !testing.Short() {
		assert.Equal(t, 1, strings.Count(s.errs.text(), "eviction_policy forecast"), s.errs.text())
	}
	s.stop()
}

// adaptedPrompt is four blocks, and a token in a block that is stored in part.
var adaptedPrompt = make([]kvactor.Token, 65)

// adapted is a host beside the server that computes a prompt with an adapter. The first time it
// finds nothing.
func adapted(t *testing.T, e *kvactor.Engine, c *seen) {
	for _, want := range []int{0, 64} {
		var s *kvactor.Sequence
		require.Eventually(t, func() (served bool) {
			var err error
			s, err = e.Admit(t.Context(), kvactor.AdmitRequest{
				Tokens: adaptedPrompt, Namespace: kvactor.Namespace{LoRA: "a", HasLoRA: true},
			})
			return err == nil
		}, time.Minute, time.Millisecond, "there are pages between the others")
		assert.Equal(t, want, s.Admitted().ReusedTokens)
		require.NoError(t, s.Commit(t.Context(), len(adaptedPrompt), kvactor.Ticket{}))
		require.NoError(t, s.Release(t.Context(), kvactor.Ticket{}))
		c.add(len(adaptedPrompt), want, 0)
	}
}

// matched is how much of the adapter's prompt is found.
func matched(t *testing.T, e *kvactor.Engine, adapter string) int {
	found, err := e.Lookup(t.Context(), kvactor.Prefix{
		Tokens: adaptedPrompt, Namespace: kvactor.Namespace{LoRA: adapter, HasLoRA: true},
	})
	require.NoError(t, err)
	return found.MatchedTokens
}

// holdDay holds the counters of a process against what its clients saw.
func holdDay(t *testing.T, m *scraped, c *seen) {
	for name, want := range map[string]int{
		"kvactor_requests_total": c.requests, "kvactor_prompt_tokens_total": c.prompt,
		"kvactor_reused_tokens_total": c.cached,
		"kvactor_hit_tokens_total":    c.cached, "kvactor_missed_tokens_total": c.prompt - c.cached,
		"kvactor_generated_tokens_total": c.completion,
		"vllm:prompt_tokens_total":       c.prompt, "vllm:prefix_cache_queries_total": c.prompt,
		"vllm:prompt_tokens_cached_total": c.cached,
		"vllm:generation_tokens_total":    c.completion, "trtllm_prompt_tokens_total": c.prompt,
		"trtllm_prompt_cached_tokens_total": c.cached,
		"trtllm_generation_tokens_total":    c.completion,
	} {
		assert.InDelta(t, want, m.sum(name), 0, name)
	}
	assert.LessOrEqual(t, m.sum("kvactor_thrash_tokens_total"), float64(c.prompt-c.cached))
	assert.Zero(t, m.sum("kvactor_sequences_running"))
	assert.Zero(t, m.sum("kvactor_actor_restarts_total"))
}
