package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/builtin"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/token"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.(*EventStream).Subscribe"),
		goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewActorSystem"))
}

// site is a server over HTTP with the built-in model.
type site struct {
	*testing.T
	url       string
	scheduler *scheduler.Scheduler
	stop      context.CancelFunc
}

func open(t *testing.T, c runner.Config, limits scheduler.Config, change func(*Config)) *site {
	t.Helper()
	m, source, err := builtin.Load()
	require.NoError(t, err)
	text, err := fs.ReadFile(source.Files, "tokenizer.json")
	require.NoError(t, err)
	words, err := token.FromJSON(text)
	require.NoError(t, err)
	form, err := token.FormOf("<|im_start|>")
	require.NoError(t, err)
	c.TokensPerBlock, c.Chunk, c.Workers, c.MaxLen, c.Checked = 8, 16, 1, 512, true
	r, err := runner.Open(m, c)
	require.NoError(t, err)
	s, err := scheduler.New(r, limits)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	config := Config{Name: "m", Words: words, Form: form, MaxLen: 512}
	if change != nil {
		change(&config)
	}
	web := httptest.NewServer(New(s, config))
	t.Cleanup(func() {
		web.Close()
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, r.Close())
		require.Empty(t, r.Hazards())
	})
	return &site{t, web.URL, s, cancel}
}

// post sends a body and gives the status and the answer.
func (s *site) post(path, body string) (int, []byte) {
	s.Helper()
	answer, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	require.NoError(s, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s, err)
	return answer.StatusCode, text
}

// answer is what tests read of completions, whole ones and events.
type answer struct {
	ID, Object, Model string
	Choices           []struct {
		Index    int
		Text     string
		Message  struct{ Role, Content string }
		Delta    struct{ Role, Content string }
		Logprobs *struct {
			Content []struct {
				Token   string
				Logprob float64
				Bytes   []byte
				Top     []struct{ Token string } `json:"top_logprobs"`
			}
			Tokens     []string
			TextOffset []int `json:"text_offset"`
		}
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct{ Message, Type, Param, Code string }
}

func (s *site) ask(path, body string) (a answer) {
	s.Helper()
	status, text := s.post(path, body)
	require.Equal(s, 200, status, string(text))
	require.NoError(s, json.Unmarshal(text, &a))
	return a
}

const chats, completions = "/v1/chat/completions", "/v1/completions"

// chatBody is a request with messages of user and assistant in turn.
func chatBody(more string, said ...string) string {
	var list []map[string]string
	for i, text := range said {
		list = append(list, map[string]string{
			"role": []string{"user", "assistant"}[i%2], "content": text,
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"model":"m","messages":%s%s}`, text, more)
}

// readEvents reads a stream. The last event is not part of the result.
func readEvents(t *testing.T, body io.Reader) (list []answer) {
	t.Helper()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			require.Empty(t, lines.Text())
			continue
		}
		if text == "[DONE]" {
			return list
		}
		var a answer
		require.NoError(t, json.Unmarshal([]byte(text), &a))
		list = append(list, a)
		if a.Error != nil {
			return list
		}
	}
	require.Fail(t, "the stream has no end")
	return nil
}

// The second turn of a chat finds the first in the cache, and a stream says the same
// as an answer at once.
func TestChat(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{Draft: 3}, nil)
	first := s.ask(chats, chatBody(`,"temperature":0`, "My name is Anna."))
	require.Len(t, first.Choices, 1)
	assert.Equal(t, "chat.completion", first.Object)
	assert.Equal(t, "assistant", first.Choices[0].Message.Role)
	assert.Equal(t, "stop", *first.Choices[0].Finish)
	assert.Equal(t, first.Usage.Prompt+first.Usage.Completion, first.Usage.Total)
	assert.Zero(t, first.Usage.Details.Cached)
	assert.Equal(t, "Hello Anna!", first.Choices[0].Message.Content)
	said := []string{"My name is Anna.", first.Choices[0].Message.Content, "What is my name?"}
	second := s.ask(chats, chatBody(`,"temperature":0`, said...))
	assert.Equal(t, "Your name is Anna.", second.Choices[0].Message.Content)
	assert.GreaterOrEqual(t, second.Usage.Details.Cached, first.Usage.Prompt)

	stream, err := http.Post(s.url+chats, "",
		strings.NewReader(
			chatBody(`,"temperature":0,"stream":true,"stream_options":{"include_usage":true}`, said...)))
	require.NoError(t, err)
	defer stream.Body.Close()
	assert.Equal(t, "text/event-stream", stream.Header.Get("Content-Type"))
	list := readEvents(t, stream.Body)
	text := ""
	for _, e := range list[:len(list)-1] {
		assert.Equal(t, "chat.completion.chunk", e.Object)
		assert.Equal(t, list[0].ID, e.ID)
		assert.Nil(t, e.Usage)
		text += e.Choices[0].Delta.Content
	}
	assert.Equal(t, "assistant", list[0].Choices[0].Delta.Role)
	assert.Equal(t, "stop", *list[len(list)-2].Choices[0].Finish)
	assert.Equal(t, second.Choices[0].Message.Content, text)
	last := list[len(list)-1]
	assert.Empty(t, last.Choices)
	assert.Equal(t, second.Usage.Completion, last.Usage.Completion)
	assert.Greater(t, last.Usage.Details.Cached, first.Usage.Prompt)
}

// Clients at once are answered as by a server without reuse.
func TestSameAnswersAsWithoutReuse(t *testing.T) {
	shared := "You answer questions about these people. Anna is a baker and lives in Rome. The cat " +
		"of Anna is called Max. Ben is a pilot and lives in Oslo. The dog of Ben is called Rex."
	var bodies []string
	for i, q := range []string{"Where does Anna live?", "Where does Ben live?", "What is a page?",
		"What is the dog of Ben called?", "What is 3 plus 4?", "Hi"} {
		bodies = append(bodies,
			chatBody(fmt.Sprintf(`,"seed":%d,"n":%d,"max_tokens":24`, i, 1+i%3), shared, "Hello!", q))
	}
	serve := func(c runner.Config, limits scheduler.Config) []string {
		s := open(t, c, limits, nil)
		said := make([]string, len(bodies))
		var clients sync.WaitGroup
		for i := range bodies {
			clients.Go(func() {
				a := s.ask(chats, bodies[i])
				for _, c := range a.Choices {
					said[i] += fmt.Sprintln(c.Message.Content, *c.Finish)
				}
			})
		}
		clients.Wait()
		return said
	}
	alone := serve(runner.Config{NoReuse: true}, scheduler.Config{Running: 3})
	for range 2 {
		assert.Equal(t, alone,
			serve(runner.Config{Pages: 70, HostPages: 100}, scheduler.Config{Draft: 4}))
	}
	assert.NotEmpty(t, alone[0])
}

func TestCompletions(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	a := s.ask(completions,
		`{"model":"m","prompt":["My name is","What"],"n":2,"seed":4,"max_tokens":6,"logprobs":2}`)
	assert.Equal(t, "text_completion", a.Object)
	require.Len(t, a.Choices, 4)
	assert.Equal(t, 24, a.Usage.Completion)
	for i, c := range a.Choices {
		assert.Equal(t, i, c.Index)
		assert.Equal(t, "length", *c.Finish)
		assert.Equal(t, c.Text, strings.Join(c.Logprobs.Tokens, ""))
		assert.Len(t, c.Logprobs.TextOffset, 6)
	}
	again := s.ask(completions,
		`{"model":"m","prompt":["My name is","What"],"n":2,"seed":4,"max_tokens":6}`)
	assert.Equal(t, a.Choices[1].Text, again.Choices[1].Text)
	assert.NotEqual(t, a.Choices[0].Text, a.Choices[1].Text)
	assert.Len(t, s.ask(completions, `{"model":"m","prompt":[5,6,7],"max_tokens":1}`).Choices, 1)
	assert.Len(t, s.ask(completions, `{"model":"m","prompt":[[5,6,7],[8]],"max_tokens":1}`).Choices, 2)
	assert.Equal(t, defaultTokens,
		s.ask(completions, `{"model":"m","prompt":"My name is","seed":1}`).Usage.Completion)
}

// An answer ends before a stop text.
func TestStop(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{Draft: 4}, nil)
	whole := s.ask(chats, chatBody(`,"temperature":0`, "What is a page?")).Choices[0].Message.Content
	require.Greater(t, len(whole), 20)
	stop := whole[12:15]
	before, _, _ := strings.Cut(whole, stop)
	a := s.ask(chats,
		chatBody(fmt.Sprintf(`,"temperature":0,"stop":["%s","zzz"]`, stop), "What is a page?"))
	assert.Equal(t, before, a.Choices[0].Message.Content)
	assert.Equal(t, "stop", *a.Choices[0].Finish)
}

func TestLogprobs(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	a := s.ask(chats, chatBody(`,"temperature":0,"logprobs":true,"top_logprobs":2`, "Hello!"))
	list, text := a.Choices[0].Logprobs.Content, ""
	require.Len(t, list, a.Usage.Completion)
	for _, l := range list {
		text += l.Token
		assert.LessOrEqual(t, l.Logprob, 0.0)
		require.Len(t, l.Top, 2)
		assert.Equal(t, l.Token, l.Top[0].Token, "greedy")
	}
	assert.Equal(t, a.Choices[0].Message.Content, text)
}

// Tenants with another salt find nothing of each other.
func TestCacheSalt(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	cached := func(more string) int {
		return s.ask(chats,
			chatBody(`,"temperature":0,"max_tokens":1`+more, "What is a radix tree?")).Usage.Details.Cached
	}
	assert.Zero(t, cached(""))
	assert.Positive(t, cached(""))
	assert.Zero(t, cached(`,"cache_salt":"a"`))
	assert.Positive(t, cached(`,"cache_salt":"a"`))
	assert.Zero(t, cached(`,"cache_salt":"b"`))
}

func TestModels(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	for path, want := range map[string]string{
		"/v1/models": `"data":[{"id":"m","object":"model"`, "/v1/models/m": `{"id":"m"`, "/healthz": "ok",
		"/v1/models/x": "model_not_found",
		"/":            "there is no GET /", "/v1/embeddings": "there is no GET", chats: "takes POST",
	} {
		answer, err := http.Get(s.url + path)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Contains(t, string(text), want, path)
		assert.Equal(t, "application/json", answer.Header.Get("Content-Type"))
	}
}

// A client that goes takes its request with it.
func TestClientGoes(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+completions,
		strings.NewReader(`{"model":"m","prompt":"My name is","max_tokens":500,"stream":true,"n":4}`))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, err = answer.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	cancel()
	require.NoError(t, answer.Body.Close())
	require.Eventually(t, func() bool {
		return s.scheduler.Counters().Running == 0 || s.scheduler.Counters().GeneratedTokens > 1900
	}, time.Minute, time.Millisecond)
	s.ask(completions, `{"model":"m","prompt":"My name is","max_tokens":1}`)
}

// What is over the limits is refused so that clients come again, and a server that
// stops says so.
func TestFullAndStopping(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{Running: 1, Waiting: 1}, nil)
	var clients sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		clients.Go(func() {
			statuses[i], _ = s.post(completions, `{"model":"m","prompt":"My name is","max_tokens":200}`)
		})
	}
	clients.Wait()
	assert.Contains(t, statuses, 200)
	for _, status := range statuses {
		assert.Contains(t, []int{200, 429}, status)
	}
	s.stop()
	s.scheduler.Stop()
	status, text := s.post(completions, `{"model":"m","prompt":"a"}`)
	assert.Equal(t, 503, status, string(text))
}

func TestTimeout(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, func(c *Config) { c.Timeout = time.Nanosecond })
	status, text := s.post(completions, `{"model":"m","prompt":"a"}`)
	assert.Equal(t, 504, status, string(text))
	assert.Contains(t, string(text), `"code":"timeout"`)
}

func TestUnhealthy(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, func(c *Config) {
		c.Healthy = func(context.Context) error { return os.ErrClosed }
	})
	answer, err := http.Get(s.url + "/healthz")
	require.NoError(t, err)
	defer answer.Body.Close()
	assert.Equal(t, 503, answer.StatusCode)
}

// What a choice sends: no half characters, no beginning of a stop text.
func TestReady(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []string
		stops  []string
		want   []string // sent after each token, then the rest
	}{
		{"plain", []string{"a", "b"}, nil, []string{"a", "b", ""}},
		{"a character of three bytes", []string{"a\xe2", "\x82", "\xacb"}, nil,
			[]string{"a", "", "€b", ""}},
		{"one that never ends", []string{"a\xe2"}, nil, []string{"a", "\uFFFD"}},
		{"no character", []string{"a\xff", "b"}, nil, []string{"a\uFFFD", "b", ""}},
		{"stop in a token", []string{"abXcd"}, []string{"X"}, []string{"", "ab"}},
		{"stop over tokens", []string{"ab<", "sto", "p>cd"}, []string{"<stop>"},
			[]string{"ab", "", "", ""}},
		{"no stop after all", []string{"ab<", "st", "x"}, []string{"<stop>"},
			[]string{"ab", "", "<stx", ""}},
		{"the first of two", []string{"a one two"}, []string{"two", "one"}, []string{"", "a "}},
		{"the beginning at the end", []string{"ab<s"}, []string{"<stop>"}, []string{"ab", "<s"}},
	} {
		var v choice
		var got []string
		for _, text := range c.tokens {
			v.text = append(v.text, text...)
			stopped := v.stop(c.stops)
			got = append(got, v.ready(c.stops, stopped))
		}
		assert.Equal(t, c.want, append(got, v.rest()), c.name)
	}
}

// A handler beside the API can be added.
func TestHandle(t *testing.T) {
	v := New(nil, Config{})
	v.Handle("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("42"))
	}))
	w := httptest.NewRecorder()
	v.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", &bytes.Buffer{}))
	assert.Equal(t, "42", w.Body.String())
}
