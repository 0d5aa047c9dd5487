package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// FuzzRun feeds a script of any bytes to a plain engine: nothing panics, each
// request has one answer that is one line of JSON with op and ok first, and a
// line that is refused as a whole has changed nothing.
func FuzzRun(f *testing.F) {
	for _, r := range refusalCases {
		f.Add([]byte(r.line))
	}
	f.Add([]byte(
		`{"op":"admit","seq":"B","tokens":{"from":0,"count":9},"prefill":"manual","chunk_tokens":4}` +
			"\n" +
			`{"op":"commit","seq":"B","computed":4}` + "\n" + `{"op":"fork","seq":"A","into":["C"]}` + "\n" +
			`{"op":"verify"}`))
	f.Add([]byte(`{"op":"admit","seq":"B","tokens":[1],"beam_width":2}` + "\n" +
		`{"op":"append","steps":[{"seq":"B","beams":[{"parent":0,"token":1},{"parent":0,"token":1}]}]}`))
	f.Add([]byte(`{"op":"append","steps":[{"seq":"A","tokens":[1,2]}]}` + "\n" +
		`{"op":"rewind","seq":"A","tokens":1}` + "\n" + `{"op":"close"}`))
	scene := openLine4 + "\n" + `{"op":"admit","seq":"A","tokens":[1,2,3,4,5]}` + "\n"
	f.Fuzz(func(t *testing.T, script []byte) {
		for line := range bytes.Lines(script) {
			if excessive(line) {
				return
			}
		}
		var engines []*plain
		c := &conversation{ctx: t.Context(), open: openPlain(&engines)}
		for line := range bytes.Lines(append([]byte(scene), script...)) {
			line = bytes.TrimRight(line, "\r\n")
			if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
				continue
			}
			e := engines[:len(engines):len(engines)]
			before := calls(e)
			answer := c.answer(line)
			c.open = refuseToOpen // the scene's engine is enough
			checkAnswer(t, answer,
				func() { require.Equal(t, before, calls(e), "%q has changed something", line) })
		}
	})
}

// checkAnswer checks the form of an answer and, if it is a refusal, that it
// changed nothing.
func checkAnswer(t *testing.T, answer any, unchanged func()) {
	line, err := json.Marshal(answer)
	require.NoError(t, err)
	var head struct {
		Op string
		OK *bool
	}
	decode(t, string(line), &head)
	op, err := json.Marshal(head.Op)
	require.NoError(t, err)
	require.NotNil(t, head.OK)
	require.Truef(t, strings.HasPrefix(string(line), fmt.Sprintf(`{"op":%s,"ok":%t`, op, *head.OK)),
		"%s", line)
	require.NotContains(t, string(line), "\n")
	if codeOf(t, string(line)) != "" {
		unchanged()
	}
}

// calls counts what engines were told to change.
func calls(engines []*plain) int {
	n := 0
	for _, e := range engines {
		n += len(e.calls)
	}
	return n
}

// refuseToOpen checks a configuration and opens nothing: what it asks for may
// be large.
func refuseToOpen(Setup) (*Rig, error) {
	return nil, refusals.New(messages.ErrConfigInvalid, "no engine for fuzzed configurations")
}

// excessive lines cost more than they find.
func excessive(line []byte) bool { return len(line) > 1<<12 }
