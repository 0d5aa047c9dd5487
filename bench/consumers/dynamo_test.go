package consumers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// dynamo is Dynamo's standalone indexer, a process of its own that is asked over HTTP.
type dynamo struct {
	t        *testing.T
	url      string
	instance int
}

// startDynamo starts the indexer of the wheel ai-dynamo-runtime, by the Python that
// DYNAMO_PYTHON names; the test is skipped where there is none.
func startDynamo(t *testing.T) *dynamo {
	python := os.Getenv("DYNAMO_PYTHON")
	if python == "" {
		t.Skip("DYNAMO_PYTHON names no Python with the wheel ai-dynamo-runtime")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	c := exec.Command(python, "-c",
		fmt.Sprintf(
			"from dynamo._core import run_kv_indexer; run_kv_indexer(['--port', '%s', '--threads', '1'])",
			port))
	var log output
	c.Stdout, c.Stderr = &log, &log
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		assert.NoError(t, c.Process.Kill())
		_ = c.Wait() // it was killed
		if t.Failed() {
			t.Log(log.text())
		}
	})
	d := &dynamo{t: t, url: "http://127.0.0.1:" + port}
	require.Eventually(t, func() bool {
		r, err := http.Get(d.url + "/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, time.Minute, 10*time.Millisecond, "the indexer does not answer")
	return d
}

// output is what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(text)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// post asks the indexer.
func (d *dynamo) post(path string, body any) []byte {
	text, err := json.Marshal(body)
	require.NoError(d.t, err)
	r, err := http.Post(d.url+path, "application/json", bytes.NewReader(text))
	require.NoError(d.t, err)
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	require.NoError(d.t, err)
	require.Less(d.t, r.StatusCode, 300, "%s: %s", path, answer)
	return answer
}

// register makes the indexer follow the engine at an endpoint, as a new instance.
func (d *dynamo) register(endpoint string) {
	d.instance++
	d.post("/register", map[string]any{"instance_id": d.instance, "endpoint": endpoint,
		"model_name": model, "block_size": blockTokens})
}

func (d *dynamo) unregister() {
	d.post("/unregister", map[string]any{"instance_id": d.instance, "model_name": model})
}

// asked is what the indexer answers of one instance, in tokens.
type asked struct {
	Longest int `json:"longest_matched"`
	GPU     int `json:"gpu"`
	CPU     int `json:"cpu"`
	Disk    int `json:"disk"`
}

// find asks what the engine has of a prompt.
func (d *dynamo) find(p prompt) asked {
	question := map[string]any{"token_ids": p.tokens, "model_name": model}
	if p.ns.HasLoRA {
		question["lora_name"] = p.ns.LoRA
	}
	if p.ns.Salt != "" {
		question["cache_salt"] = p.ns.Salt
	}
	var answer struct {
		Instances map[string]asked `json:"instances"`
	}
	text := d.post("/query", question)
	require.NoError(d.t, json.Unmarshal(text, &answer), string(text))
	return answer.Instances[fmt.Sprint(d.instance)]
}

// answer says of a prompt what the indexer does: how many of its blocks the engine has, and
// how many of the first of them are on the device. The others' tiers are the host's word.
func (d *dynamo) answer(h *host) func(prompt) []string {
	return func(p prompt) []string {
		want, found := h.published(p), d.find(p)
		onDevice := slices.IndexFunc(want, func(tier string) bool { return tier != "gpu" })
		if onDevice < 0 {
			onDevice = len(want)
		}
		if found.Longest == len(want)*blockTokens && found.GPU == onDevice*blockTokens {
			return want
		}
		return []string{fmt.Sprintf("%+v", found)}
	}
}

// After each step Dynamo says of each prompt how many of its blocks the engine has, and how
// many of them are on the device.
func TestDynamoFollows(t *testing.T) {
	d := startDynamo(t)
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint, snapshots)
	defer h.close()
	d.register(endpoint)
	seen := map[string]int{}
	for range 100 {
		h.step()
		h.follow("Dynamo", d.answer(h))
		for _, p := range h.prompts {
			for _, tier := range h.published(p) {
				seen[tier]++
			}
		}
	}
	assert.Greater(t, seen["gpu"], 100)
	assert.Greater(t, seen["cpu"], 100)
	d.register(endpoint) // another instance, which comes late
	h.follow("Dynamo, which came late,", d.answer(h))
	for range 10 {
		h.step()
		h.follow("Dynamo, which came late,", d.answer(h))
	}
}

// Without the salt no one finds a salted prompt.
func TestDynamoKeepsSaltsApart(t *testing.T) {
	d := startDynamo(t)
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint, snapshots)
	defer h.close()
	tokens := make([]messages.Token, 16)
	s, err := h.engine.Admit(t.Context(),
		messages.AdmitRequest{Namespace: messages.Namespace{Salt: "tenant"}, Tokens: tokens})
	require.NoError(t, err)
	require.NoError(t, s.Commit(t.Context(), 16, messages.Ticket{}))
	require.NoError(t, h.p.Poll(t.Context()))
	d.register(endpoint)
	h.prompts = []prompt{{messages.Namespace{Salt: "tenant"}, tokens}}
	h.follow("Dynamo", d.answer(h))
	assert.Equal(t, 16, d.find(h.prompts[0]).Longest)
	assert.Zero(t, d.find(prompt{tokens: tokens}).Longest)
	assert.Zero(t, d.find(prompt{messages.Namespace{Salt: "other"}, tokens}).Longest)
}

// Dynamo 1.6.1 takes no notice of an engine that has started again, whose sequences begin
// anew: the instance has to be registered again.
func TestDynamoIsRegisteredAgainAfterARestart(t *testing.T) {
	d := startDynamo(t)
	endpoint := freeEndpoint(t)
	h := newHost(t, endpoint, snapshots)
	d.register(endpoint)
	for range 10 {
		h.step()
		h.follow("Dynamo", d.answer(h))
	}
	before := h.prompts
	h.close()
	d.unregister()
	h = newHost(t, endpoint, snapshots)
	defer h.close()
	d.register(endpoint)
	h.prompts = before // of which nothing is left
	h.follow("Dynamo after a restart", d.answer(h))
	h.step()
	h.follow("Dynamo after a restart", d.answer(h))
}
