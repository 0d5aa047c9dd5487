package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notes is a writer that tests wait for.
type notes struct {
	sync.Mutex
	bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.Lock()
	defer n.Unlock()
	return n.Buffer.Write(b)
}

func (n *notes) text() string {
	n.Lock()
	defer n.Unlock()
	return n.String()
}

// startServe runs demo serve and gives its address and what ends it.
func startServe(t *testing.T, args ...string) (url string, stop func() int, errs *notes) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	errs = &notes{}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--model", "tiny"}, args...), strings.NewReader(""), io.Discard, errs)
	}()
	address := regexp.MustCompile(`http://\S+`)
	require.Eventually(t, func() bool { return address.MatchString(errs.text()) }, time.Minute, time.Millisecond, "%s", errs)
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	return address.FindString(errs.text()), stop, errs
}

func TestServe(t *testing.T) {
	url, stop, errs := startServe(t, "--draft", "4", "--max-len", "512")
	answer, err := http.Post(url+"/chat/completions", "", strings.NewReader(`{"model":"kvactor-tiny","temperature":0,"messages":[{"role":"user","content":"My name is Anna."}]}`))
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, 200, answer.StatusCode)
	assert.Contains(t, string(text), "Hello Anna!")
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// An address without a host is on the loopback interface, not on all of them.
func TestServeListensLocally(t *testing.T) {
	url, stop, errs := startServe(t, "--listen", ":0", "--max-len", "64")
	assert.Contains(t, url, "http://127.0.0.1:")
	assert.Zero(t, stop(), errs.text())
}

// A model with recurrent layers is served with reuse, choices and drafts.
func TestServeRecurrent(t *testing.T) {
	folder := chatFolder(t, recurrentFolder)
	url, stop, errs := startServe(t, "--model", folder, "--draft", "4", "--max-len", "256", "--tokens-per-block", "4", "--chunk", "8")
	ask := func() (answer struct {
		Choices []struct{ Text string }
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}) {
		body := `{"model":"` + filepath.Base(folder) + `","temperature":0,"n":3,"max_tokens":12,"prompt":"ab ab ab ab ab ab"}`
		r, err := http.Post(url+"/completions", "", strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, 200, r.StatusCode)
		require.NoError(t, json.NewDecoder(r.Body).Decode(&answer))
		require.NoError(t, r.Body.Close())
		return answer
	}
	first, second := ask(), ask()
	assert.Len(t, first.Choices, 3)
	assert.Equal(t, first.Choices, second.Choices)
	assert.Zero(t, first.Usage.Details.Cached)
	assert.Equal(t, 16, second.Usage.Details.Cached)
	http.DefaultClient.CloseIdleConnections()
	assert.Zero(t, stop(), errs.text())
}

// A request that runs when the server is stopped is served; one that takes longer than
// the grace is told.
func TestServeStops(t *testing.T) {
	for _, c := range []struct{ grace, tokens, want string }{{"5m", "300", "[DONE]"}, {"0s", "4000", "stopping"}} {
		url, stop, errs := startServe(t, "--grace", c.grace)
		answer, err := http.Post(url+"/completions", "", strings.NewReader(`{"model":"kvactor-tiny","prompt":"a","stream":true,"max_tokens":`+c.tokens+`}`))
		require.NoError(t, err)
		first := make([]byte, 1)
		_, err = io.ReadFull(answer.Body, first)
		require.NoError(t, err)
		ended := make(chan int, 1)
		go func() { ended <- stop() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Contains(t, string(text), c.want)
		http.DefaultClient.CloseIdleConnections()
		assert.Zero(t, <-ended, errs.text())
	}
}

func TestServeMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"no such file":              {"serve", "--model", "none"},
		"listen":                    {"serve", "--model", "tiny", "--listen", "nowhere:99999"},
		"negative":                  {"serve", "--model", "tiny", "--running", "-1"},
		"not a multiple":            {"serve", "--model", "tiny", "--chunk", "5"},
		"--timeout":                 {"serve", "--timeout", "0s"},
		"--dtype":                   {"serve", "--dtype", "int2"},
		"unknown command \"hello\"": {"serve", "hello"},
	} {
		status, out, errs := command(t, "", args...)
		assert.Equal(t, 2, status, want)
		assert.Empty(t, out)
		assert.Contains(t, errs, want)
	}
}
