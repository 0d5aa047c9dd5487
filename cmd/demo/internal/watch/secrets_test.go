package watch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/windows"
)

// What no one outside may learn: tokens that occur nowhere else, and a salt.
var (
	secretTokens = []messages.Token{1918273645, 1827364519, 1736451928, 1645192837, 1519283746,
		1928374615, 1637281945, 1746918253}
	secretSalt = "salt-of-tenant-5f3c9a"
)

// spellings are the ways in which a secret may be written.
func spellings() (list []string) {
	add := func(raw []byte) {
		list = append(list, string(raw), hex.EncodeToString(raw),
			base64.StdEncoding.EncodeToString(raw)[:4*(len(raw)/3)])
	}
	for _, token := range secretTokens {
		list = append(list, fmt.Sprint(token), fmt.Sprintf("%x", token))
		add(binary.BigEndian.AppendUint32(nil, uint32(token)))
		add(binary.LittleEndian.AppendUint32(nil, uint32(token)))
	}
	add([]byte(secretSalt))
	return list
}

// watched is an engine that is watched, and everything that it has said.
type watched struct {
	at  string
	log bytes.Buffer
}

// startWatched starts an engine whose observer has the options, and serves it to two tenants with
// the same prompt: one without a salt and one with.
func startWatched(t *testing.T, o observer.Options) *watched {
	w := &watched{}
	watcher := observer.New(o)
	logger := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	preset := engine.Tiny()
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, preset.Windows
	rig, err := engine.Open(engine.Options{
		Model: preset.Model, Cache: cache, Pages: windows.PageCounts{Primary: 8},
		Observer: watcher, More: []actors.Option{actors.WithLogger(logger)},
	})
	require.NoError(t, err)
	at, stop, err := page.Serve("127.0.0.1:0", watcher.Page())
	require.NoError(t, err)
	t.Cleanup(func() {
		stop()
		_, err := rig.Shutdown(context.Background())
		require.NoError(t, err)
	})
	w.at = "http://" + at.String()
	for _, namespace := range []messages.Namespace{{}, {Salt: secretSalt}} {
		admitted, err := rig.Admit(t.Context(), messages.AdmitRequest{Namespace: namespace,
			Tokens: secretTokens})
		require.NoError(t, err)
		_, err = rig.Commit(t.Context(),
			[]messages.CommitStep{{Sequence: admitted.Sequence, Computed: len(secretTokens)}})
		require.NoError(t, err)
		_, err = rig.Release(t.Context(), []messages.ReleaseStep{{Sequence: admitted.Sequence}})
		require.NoError(t, err)
	}
	// A call that the engine refuses.
	_, err = rig.Admit(t.Context(),
		messages.AdmitRequest{Tokens: append([]messages.Token{-5}, secretTokens...)})
	require.Error(t, err)
	return w
}

// answers reads everything that a visitor can read without knowing a prompt: all paths, and
// of the streams what comes until all blocks of both tenants have been told.
func (w *watched) answers(t *testing.T) map[string]string {
	all := map[string]string{}
	for _, path := range []string{"/", "/page.js", "/page.css", "/stats", "/healthz", "/metrics",
		"/debug/pprof/", "/nowhere", "/stats?tokens=1&show=1"} {
		_, all[path] = get(t, w.at+path)
	}
	r, err := http.Post(w.at+"/lookup", "", strings.NewReader(`{"prompt": "-5"}`))
	require.NoError(t, err)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	all["/lookup"] = string(text)
	all["/live"] = w.stream(t, "/live",
		func(text string) bool { return strings.Count(text, "data:") > 2 })
	all["/events"] = w.stream(t, "/events", func(text string) bool {
		return strings.Contains(text, `"salted":true`) && strings.Contains(text,
			plainName(t, messages.Namespace{}))
	})
	return all
}

// stream reads lines until they are enough.
func (w *watched) stream(t *testing.T, path string, enough func(string) bool) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.at+path, nil)
	require.NoError(t, err)
	r, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer r.Body.Close()
	var text strings.Builder
	for lines := bufio.NewReader(r.Body); !enough(text.String()); {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "%s: %s", path, text.String())
		text.WriteString(line)
	}
	return text.String()
}

// plainName is how the first block of the secret prompt is named for routers.
func plainName(t *testing.T, namespace messages.Namespace) string {
	names, err := events.Names(messages.Prefix{Namespace: namespace, Tokens: secretTokens}, 4)
	require.NoError(t, err)
	require.Len(t, names, 2)
	return hex.EncodeToString(names[0][len(names[0])-8:])
}

// Neither the page, its numbers, its streams, the metrics nor the log have a token or a salt,
// and none has the name of a salted block that who knows the salt could compute.
func TestNothingTellsSecrets(t *testing.T) {
	w := startWatched(t,
		observer.Options{Title: "m", Aliases: metrics.AliasVLLM | metrics.AliasTensorRTLLM, Pprof: true})
	all := w.answers(t)
	salted := plainName(t, messages.Namespace{Salt: secretSalt})
	require.NotEqual(t, salted, plainName(t, messages.Namespace{}))
	all["the log"] = w.log.String()
	for where, text := range all {
		assert.NotEmpty(t, text, where)
		for _, secret := range append(spellings(), salted) {
			assert.NotContains(t, text, secret, where)
		}
	}
	// Another start names the blocks otherwise: the names have a key of the start.
	again := startWatched(t, observer.Options{Title: "m"}).answers(t)["/events"]
	assert.NotEqual(t, saltedNames(all["/events"]), saltedNames(again))
	assert.Contains(t, again, plainName(t, messages.Namespace{}), "names without a salt stay")
}

// saltedNames is the part of an event in which a salted block is named.
func saltedNames(text string) string {
	before, _, _ := strings.Cut(text, `"salted":true`)
	return before[strings.LastIndex(before, `"blocks"`):]
}

// With the flag the events have them, which shows that the search above finds them; the other
// paths have none with it either.
func TestShowTokensTellsThem(t *testing.T) {
	w := startWatched(t, observer.Options{Title: "m", ShowTokens: true})
	all := w.answers(t)
	for _, secret := range []string{fmt.Sprint(secretTokens[0]), secretSalt,
		plainName(t, messages.Namespace{Salt: secretSalt})} {
		assert.Contains(t, all["/events"], secret)
		for where, text := range all {
			if where != "/events" {
				assert.NotContains(t, text, secret, where)
			}
		}
	}
}
