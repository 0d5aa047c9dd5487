package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
)

// sample is one line of what Prometheus reads.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// scraped is what a server exports.
type scraped struct {
	t       *testing.T
	samples []sample
	kinds   map[string]string // by name without _bucket, _sum and _count
}

var (
	sampleLine = regexp.MustCompile(`^([a-z:_]+)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

func scrape(t *testing.T, url string) *scraped {
	answer, err := http.Get(strings.TrimSuffix(url, "/v1") + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	s := &scraped{t: t, kinds: map[string]string{}}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if kind, is := strings.CutPrefix(lines.Text(), "# TYPE "); is {
			f := strings.Fields(kind)
			s.kinds[f[0]] = f[1]
		}
		m := sampleLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		x := sample{name: m[1], labels: map[string]string{}}
		x.value, err = strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			x.labels[pair[1]] = pair[2]
		}
		s.samples = append(s.samples, x)
	}
	return s
}

// settled scrapes until no copy and no save is under way.
func settled(t *testing.T, url string) (last *scraped) {
	moved := func(s *scraped) (sum float64) {
		if s.kinds["kvactor_store_saved_bytes_total"] != "" {
			sum = s.sum("kvactor_store_saved_bytes_total") + s.sum(
				"kvactor_store_call_duration_seconds_count")
		}
		return sum + s.sum("kvactor_link_bytes_total")
	}
	require.Eventually(t, func() bool {
		before := last
		last = scrape(t, url)
		return before != nil && moved(last) == moved(before) &&
			last.sum("kvactor_pages", "primary", "used") == 0
	}, time.Minute, 50*time.Millisecond)
	return last
}

// sum adds up the samples of a name whose labels have some values.
func (s *scraped) sum(name string, values ...string) (sum float64) {
	found := false
	for _, x := range s.samples {
		has := func(value string) bool {
			for _, v := range x.labels {
				if v == value {
					return true
				}
			}
			return false
		}
		if x.name == name && !slices.ContainsFunc(values, func(v string) bool { return !has(v) }) {
			sum, found = sum+x.value, true
		}
	}
	require.True(s.t, found, "%s %v", name, values)
	return sum
}

// seen is what clients saw, all together.
type seen struct {
	mu                                           sync.Mutex
	requests, prompt, cached, completion, blocks int
	// aborted are requests that their clients left after the first event, and unread the most
	// tokens that were generated for them and not read.
	aborted, unread int
	// likelihoods are requests that asked for those of their prompts.
	likelihoods int
}

// add counts an answer. 16 tokens are a block.
func (c *seen) add(prompt, cached, completion int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.prompt += prompt
	c.cached += cached
	c.completion += completion
	c.blocks += (prompt + 15) / 16
}

// complete sends a request, counts its answer and returns the tokens of it.
func (c *seen) complete(t *testing.T, url string, body map[string]any) string {
	text, err := json.Marshal(body)
	require.NoError(t, err)
	answer, err := http.Post(url+"/completions", "", strings.NewReader(string(text)))
	require.NoError(t, err)
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode, string(said))
	var a struct {
		Choices []struct {
			Tokens []int `json:"token_ids"`
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	require.NoError(t, json.Unmarshal(said, &a))
	tokens := 0
	for _, choice := range a.Choices {
		tokens += len(choice.Tokens)
	}
	assert.Equal(t, tokens, a.Usage.Completion, "the usage counts the tokens of all choices")
	c.add(a.Usage.Prompt, a.Usage.Details.Cached, tokens)
	if body["prompt_logprobs"] != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.likelihoods++
	}
	return fmt.Sprint(a.Choices)
}

// abort leaves a stream after its first event. Its prompt has nothing in common with others.
func (c *seen) abort(t *testing.T, url string, prompt []int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const most = 300
	text, err := json.Marshal(map[string]any{"model": "kvactor-tiny", "prompt": prompt,
		"max_tokens": most, "stream": true, "ignore_eos": true})
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/completions",
		strings.NewReader(string(text)))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, err = io.ReadFull(answer.Body, make([]byte, 1))
	require.NoError(t, err)
	cancel()
	require.NoError(t, answer.Body.Close())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.aborted++
	c.prompt += len(prompt)
	c.completion++
	c.unread += most
	c.blocks += (len(prompt) + 15) / 16
}

// A server whose sequences are preempted, lost, aborted, forked and drafted counts what its
// clients saw, under every name that it exports.
func TestCountersAreWhatClientsSaw(t *testing.T) {
	points := &enginetest.Failpoints{}
	f := &serveFlags{model: "tiny", listen: "127.0.0.1:0", timeout: time.Minute, grace: time.Minute}
	f.config.Pages, f.config.HostPages, f.config.TokensPerBlock, f.config.Chunk, f.config.MaxLen = 30,
		24, 16, 64, 512
	f.config.Options = []actors.Option{actors.WithRestartLimit(1000, 1),
		enginetest.WithFailpoints(points)}
	f.limits = scheduler.Config{Running: 8, Waiting: 256, StepTokens: 256, Draft: 3}
	f.reset = true
	f.watch.Aliases = []string{"vllm", "trtllm"}
	f.store.URL = "file://" + t.TempDir()
	s, err := openService(t.Context(), f, io.Discard)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, io.Discard) }()
	url := fmt.Sprintf("http://%s/v1", s.listener.Addr())
	c := &seen{}
	crowd(t, url, c, func(i int) {
		// Others run meanwhile: what fails is something of theirs.
		most := s.scheduler.Counters().GeneratedTokens
		for s.scheduler.Counters().GeneratedTokens < most+40 {
			time.Sleep(time.Millisecond)
		}
		assert.NoError(t,
			points.ArmWithin([]string{"tree", "coordinator", "pool:w64h2", "pool:wfullh2"}[i%4], i%2))
	})
	require.Eventually(t, func() bool { return s.scheduler.Counters().Running == 0 }, time.Minute,
		time.Millisecond)
	for _, query := range []string{"", "", "?reset_running_requests=true"} {
		answer, err := http.Post(strings.TrimSuffix(url, "/v1")+"/reset_prefix_cache"+query, "", nil)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, 200, answer.StatusCode)
	}
	holdCounters(t, settled(t, url), c, s.scheduler.Counters())
	http.DefaultClient.CloseIdleConnections()
	stop()
	require.NoError(t, <-ended)
}

// failures is how many actors fail while the crowd is served.
const failures = 8

// crowd is more clients than the cache has pages for, and some that are refused.
func crowd(t *testing.T, url string, c *seen, fail func(int)) {
	var clients sync.WaitGroup
	for i := range 24 {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		prompt := make([]int, 60+rng.IntN(60))
		for j := range prompt {
			prompt[j] = 5 + rng.IntN(600)
		}
		if prompt[0] = 700 + i; i%3 == 1 {
			copy(prompt, []int{9, 8, 7, 6, 5, 9, 8, 7, 6, 5, 9, 8, 7, 6, 5, 9, 8, 7, 6, 5}) // shared
		}
		clients.Go(func() {
			if i%6 == 5 {
				c.abort(t, url, prompt)
				return
			}
			c.complete(t, url, map[string]any{
				"model": "kvactor-tiny", "prompt": prompt, "max_tokens": 20 + 10*(i%5), "n": 1 + i%3,
				"temperature": 0.3, "seed": i,
				"ignore_eos": i%2 == 0, "return_token_ids": true,
				"prompt_logprobs": map[bool]any{true: 1}[i%8 == 2],
			})
		})
	}
	for i := range failures {
		fail(i)
	}
	clients.Wait()
	for _, body := range []string{
		`{"model":"kvactor-tiny","prompt":[999999]}`,
		`{"model":"kvactor-tiny","prompt":"a","temprature":1}`, `{"model":"other","prompt":"a"}`,
	} {
		answer, err := http.Post(url+"/completions", "", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.GreaterOrEqual(t, answer.StatusCode, 400)
	}
}
