package fleet

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever another process sends as events, the index of the router has the blocks that
// were stored and not removed since, or the stream ends with an error.
func FuzzStream(f *testing.F) {
	for _, text := range []string{
		"id: 4\ndata: {\"sequence\":4,\"events\":[{\"type\":\"cleared\"},{\"type\":\"stored\",\"blocks\":[\"00000000000000aa\",\"b\"]}]}\n\n" +
			"data: {\"sequence\":5,\"events\":[{\"type\":\"moved\",\"blocks\":[\"aa\"]},{\"type\":\"removed\",\"blocks\":[\"b\"]}]}\n",
		"data: {\"sequence\":1}\ndata: {\"sequence\":3}\n",
		"data: {\"sequence\":18446744073709551615,\"events\":[{\"type\":\"stored\",\"blocks\":[\"x\"]}]}\n",
		"data: {\"events\":[{\"type\":\"new\",\"blocks\":[\"a\"]}]}\n", "data: null\n", ": a comment\n",
		"data: {",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &stream{blocks: map[uint64]struct{}{}, changed: make(chan struct{})}
		require.Error(t, s.read(bufio.NewReader(strings.NewReader(text))), "a stream ends")
		require.LessOrEqual(t, len(s.blocks), strings.Count(text, `stored`)*len(text))
		require.Equal(t, s.events, s.index().Events)
		if !strings.Contains(text, "stored") && !strings.Contains(text, `\u`) {
			require.Empty(t, s.blocks)
		}
	})
}

// Whatever the process that has started an engine sends it as a window is read as it was
// meant, or refused.
func FuzzWindow(f *testing.F) {
	for _, w := range []Window{{}, {Until: 5, Finish: true},
		{Requests: []Request{{Number: 1, Prompt: Tokens{1, 2, 1 << 30}, Answer: Tokens{}}}}} {
		text, err := json.Marshal(w)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"requests":[{"prompt":"AAA="}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var first, second Window
		if json.Unmarshal(text, &first) != nil {
			return
		}
		text, err := json.Marshal(first)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &second))
		require.Len(t, second.Requests, len(first.Requests))
		for i := range first.Requests {
			require.ElementsMatch(t, first.Requests[i].Prompt, second.Requests[i].Prompt)
		}
	})
}
