package page

import (
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

func decoded(t *testing.T, file string) image.Image {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	return picture
}

func post(t *testing.T, h http.Handler, body string) (status int, text string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/lookup", strings.NewReader(body)))
	answer, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w.Code, string(answer)
}

// A prompt is looked up as numbers, or as the host's text.
func TestLookup(t *testing.T) {
	p := New(Options{Source: engine{}})
	status, text := post(t, p, `{"prompt": "1, 2 3-8"}`)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t,
		`{"tokens": 8, "matched": 4, "device": 1, "host": 3, "reason": "evicted", "chat": false}`, text)
	for body, want := range map[string]string{
		`nonsense`: "the body is not {", `[]`: "not a JSON array there",
		`{"prompt": 5}`:   "not a JSON number there",
		`{"prompt": "x"}`: "no prompt", `{"prompt": ""}`: "0 tokens", `{"tokens": []}`: "unknown",
		`{"prompt": "0-200"}`: "too long",
		`{"prompt": "1"} {}`:  "more than one", `{"prompt": "5-1"}`: "range",
		`{"prompt": "0-2000000"}`: "range", `{"prompt": "3000000000"}`: "no prompt",
		`{"prompt": "` + strings.Repeat("1 ", maxLookupBytes) + `"}`: "too large",
	} {
		status, text := post(t, p, body)
		assert.Equal(t, http.StatusBadRequest, status, text)
		assert.NotContains(t, text, "Go ")
		assert.Contains(t, text, want)
	}
	p = New(Options{Source: engine{}, Encode: func(s string) ([]messages.Token,
		error) {
		return make([]messages.Token, len(s)), nil
	}})
	_, text = post(t, p, `{"prompt": "abcd"}`)
	assert.Contains(t, text, `"tokens":4`)
	status, _ = post(t, New(Options{Source: engine{}, NoLookup: true}), `{"prompt": "1"}`)
	assert.Equal(t, http.StatusNotFound, status)
	status, text = post(t, New(Options{Source: engine{io.ErrUnexpectedEOF}}), `{"prompt": "1"}`)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.NotContains(t, text, "EOF")
}

// Whatever is looked up is an answer or a refusal, and never too many tokens.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{`{"prompt": "1, 2 3-8"}`, `{"prompt": "-"}`, `{}`,
		`{"prompt": "0-262143 0"}`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		text, err := readPrompt(strings.NewReader(body))
		if err != nil {
			return
		}
		tokens, err := numbers(text)
		require.LessOrEqual(t, len(tokens), maxLookupTokens)
		for _, n := range tokens {
			require.GreaterOrEqual(t, n, messages.Token(0))
		}
		if err == nil && strings.ContainsAny(text, "0123456789") {
			require.NotEmpty(t, tokens)
		}
	})
}

// A request under another host's name is not served on the loopback interface.
func TestLocal(t *testing.T) {
	h := Local(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200,
		"evil.example:80": http.StatusMisdirectedRequest, "10.0.0.1": http.StatusMisdirectedRequest,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, host)
	}
}

// A histogram's buckets are an eighth to a quarter wide, and the quantiles those of the
// last second.
func TestLatencies(t *testing.T) {
	for d := time.Duration(4); d < time.Minute; d += d/7 + 1 {
		assert.Greater(t, upper(bucketOf(d)), d)
		assert.LessOrEqual(t, upper(bucketOf(d)), d*5/4)
	}
	r, w, now := &Recorder{}, &window{}, time.Now()
	record := func(d time.Duration, n int) {
		for range n {
			r.Observe(t.Context(), &messages.Append{}, time.Now().Add(-d), nil)
		}
	}
	record(time.Second, 1000)
	l := r.latencies(w, now)
	assert.Equal(t, 1000, l["append"].Calls)
	assert.InDelta(t, 1, l["append"].P50, .3)
	record(time.Hour, 3)
	record(2*time.Minute, 97)
	l = r.latencies(w, now.Add(1100*time.Millisecond))
	assert.Equal(t, 100, l["append"].Calls, "the window begins at the first answer")
	assert.NotContains(t, l, "admit")
	assert.InDelta(t, 120, l["append"].P50, 31)
	assert.Greater(t, l["append"].P99, 1000.)
}

// The latest transfers are told once.
func TestTransfersAreToldOnce(t *testing.T) {
	r := &Recorder{}
	list, next := r.since(0)
	assert.Empty(t, list)
	for i := range 2*keptTransfers + 3 {
		r.Copied(Transfer{Copies: i})
	}
	list, next = r.since(next)
	require.Len(t, list, keptTransfers)
	assert.Equal(t, keptTransfers+3, list[0].Copies)
	r.Copied(Transfer{Copies: -1})
	assert.Len(t, r.until(next), keptTransfers-1, "a new reader gets what is kept")
	list, _ = r.since(next)
	assert.Equal(t, []Transfer{{Copies: -1}}, list)
}

// Each kind of page has a character of its own, which JSON does not escape.
func TestCells(t *testing.T) {
	assert.Len(t, alphabet, 4*(len(priorityClasses)+1)*ageClasses)
	seen := map[byte]bool{}
	for _, priority := range []messages.Priority{0, 20, 35, 50, 100} {
		for _, age := range []uint64{0, 251, 501, 1000} {
			for _, state := range []inspect.PageState{inspect.PageUsed, inspect.PageCached,
				inspect.PageCopy} {
				c := cell(inspect.PageSample{State: state, Priority: priority, Age: age}, 1000)
				assert.False(t, seen[c])
				seen[c] = true
			}
		}
	}
	assert.Equal(t, byte('0'), cell(inspect.PageSample{}, 9))
	list := []inspect.PageSample{{State: inspect.PageUsed, Age: 90},
		{State: inspect.PageCached, Age: 2}, {State: inspect.PageCached, Age: 8}}
	assert.Equal(t, string([]byte{alphabet[1+60], alphabet[2], alphabet[2+60]}), drawn(list),
		"a page in use is not the oldest")
	assert.NotContains(t, alphabet, `"`)
	assert.NotContains(t, alphabet, `\`)
	assert.False(t, strings.ContainsAny(alphabet, "<>&"))
}
