package watch

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func get(t *testing.T, url string) (status int, body string) {
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

// The page is that of the engine that runs, and there is none before and after.
func TestTheEngineThatRunsIsWatched(t *testing.T) {
	var out bytes.Buffer
	w, err := Start("127.0.0.1:0", "m", &out)
	require.NoError(t, err)
	defer w.Close()
	at := "http://" + w.at.String()
	assert.Equal(t, "watch at "+at+"\n", out.String())
	status, _ := get(t, at+"/stats")
	assert.Equal(t, http.StatusServiceUnavailable, status)

	preset := engine.Tiny()
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, preset.Windows
	r, err := engine.Open(engine.Options{Model: preset.Model, Cache: cache,
		Pages: windows.PageCounts{Primary: 8}, Observer: w.Observer()})
	require.NoError(t, err)
	_, err = r.Admit(t.Context(), messages.AdmitRequest{Tokens: []messages.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	_, body := get(t, at+"/metrics")
	assert.Contains(t, body, `kvactor_admissions_total{answer="admitted",engine="0",model_name="m"} 1`)
	_, body = get(t, at+"/stats")
	assert.Contains(t, body, `"prompt_tokens":5`)
	status, _ = get(t, at+"/healthz")
	assert.Equal(t, http.StatusOK, status)
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/events", nil)
	require.NoError(t, err)
	events, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	assert.Equal(t, "text/event-stream", events.Header.Get("Content-Type"))
	cancel()
	_ = events.Body.Close()

	_, err = r.Shutdown(t.Context())
	require.NoError(t, err)
	status, _ = get(t, at+"/stats")
	assert.Equal(t, http.StatusServiceUnavailable, status)
}
