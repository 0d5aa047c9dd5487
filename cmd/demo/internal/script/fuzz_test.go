package script

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRun feeds a script of any bytes to a plain engine: nothing panics, each
// request has one answer that is one line of JSON with op and ok first, and a
// line that is refused as a whole has changed nothing.
func FuzzRun(f *testing.F) {
	for _, r := range refusals {
		f.Add([]byte(r.line))
	}
	f.Add([]byte(`{"op":"admit","seq":"B","tokens":{"from":0,"count":9},"prefill":"manual","chunk_tokens":4}` + "\n" +
		`{"op":"commit","seq":"B","computed":4}` + "\n" + `{"op":"fork","seq":"A","into":["C"]}` + "\n" + `{"op":"verify"}`))
	f.Add([]byte(`{"op":"admit","seq":"B","tokens":[1],"beam_width":2}` + "\n" +
		`{"op":"append","steps":[{"seq":"B","beams":[{"parent":0,"token":1},{"parent":0,"token":1}]}]}`))
	f.Add([]byte(`{"op":"append","steps":[{"seq":"A","tokens":[1,2]}]}` + "\n" + `{"op":"rewind","seq":"A","tokens":1}` + "\n" + `{"op":"close"}`))
	scene := openLine4 + "\n" + `{"op":"admit","seq":"A","tokens":[1,2,3,4,5]}` + "\n"
	f.Fuzz(func(t *testing.T, script []byte) {
		for line := range bytes.Lines(script) {
			if excessive(line) {
				t.Skip("a model, a run of tokens or a batch too large for a fuzz run")
			}
		}
		var engines []*plain
		c := &conversation{ctx: t.Context(), open: openPlain(&engines)}
		requests := 0
		for line := range bytes.Lines(append([]byte(scene), script...)) {
			line = bytes.TrimRight(line, "\r\n")
			if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
				continue
			}
			requests++
			e := engines[:len(engines):len(engines)]
			before := calls(e)
			var out bytes.Buffer
			require.NoError(t, Run(bytes.NewReader(line), &out, openPlain(new([]*plain))))
			require.Equal(t, 1, strings.Count(out.String(), "\n"), "answers to %q", line)
			checkAnswer(t, c.answer(line), func() { require.Equal(t, before, calls(e), "%q has changed something", line) })
		}
	})
}

// checkAnswer checks the form of an answer and, if it is a refusal, that it
// changed nothing.
func checkAnswer(t *testing.T, answer any, unchanged func()) {
	line, err := json.Marshal(answer)
	require.NoError(t, err)
	require.Regexp(t, `^\{"op":"[^"]*","ok":(true|false)[,}]`, strings.ReplaceAll(string(line), `\"`, ""))
	require.NoError(t, Equal(line, line, 0))
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

// excessive lines are right and cost what they ask for: large page counts and
// models are the plain engine's to allocate.
func excessive(line []byte) bool {
	return len(line) > 1<<12 || bytes.Contains(line, []byte(`"open"`)) || bytes.Contains(line, []byte(`\u`))
}
