package openai

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
)

// What a request retains outlives others.
func TestRetention(t *testing.T) {
	const retention = `,"kv_cache_retention_config":{"token_range_retention_configs":[{"token_start":0,"priority":90}]}`
	ask := func(s *site, more, text string) int {
		return s.ask(chats, chatBody(`,"temperature":0,"max_tokens":1`+more, text)).Usage.Details.Cached
	}
	for _, more := range []string{"", retention} {
		s := open(t, runner.Config{Pages: 24}, scheduler.Config{}, nil)
		const kept = "A radix tree is a tree in which a node that is an only child is merged with its parent."
		require.Zero(t, ask(s, more, kept))
		for i := range 6 {
			ask(s, "", strings.Repeat(string(rune('a'+i)), 90))
		}
		assert.Equal(t, more == retention, ask(s, "", kept) > 30, more)
	}
}

func TestRetentionRefused(t *testing.T) {
	s := open(t, runner.Config{}, scheduler.Config{}, nil)
	for value, want := range map[string]string{
		`{"x":1}`: `"kv_cache_retention_config: unknown name x"`,
		`{"token_range_retention_configs":[{"token_start":0},{"token_start":5}]}`: "retention range from 0 has an open end",
	} {
		status, text := s.post(chats, chatBody(`,"kv_cache_retention_config":`+value, "a"))
		assert.Equal(t, 400, status)
		assert.Contains(t, string(text), want)
	}
}
