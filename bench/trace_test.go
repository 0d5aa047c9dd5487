package bench

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// traced is a request of a trace: the identities of its prompt's blocks.
type traced struct {
	InputLength int      `json:"input_length"`
	IDs         []int    `json:"hash_ids"`
	Runs        [][2]int `json:"hash_runs"` // the same, start and length
}

// trace is a file in ../shared/traces and the tokens of one of its blocks.
type trace struct {
	name        string
	blockTokens int
}

var traces = []trace{
	{"mooncake_conversation_h1.jsonl.gz", 512}, {"mooncake_synthetic.jsonl.gz", 512},
	{"claude_code_agentic_dev.jsonl.gz", 64}, {"agent_runs_lmcache.jsonl.gz", 16},
}

// read reads the trace up to a number of prompt tokens.
func (t trace) read(b *testing.B, limit int) (requests []traced) {
	path := filepath.Join("..", "..", "shared", "traces", t.name)
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		b.Skipf("%s is not there", path)
	}
	require.NoError(b, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(b, err)
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<24)
	for tokens := 0; lines.Scan() && tokens < limit; {
		var r traced
		require.NoError(b, json.Unmarshal(lines.Bytes(), &r))
		for _, id := range r.IDs {
			r.Runs = append(r.Runs, [2]int{id, 1})
		}
		r.IDs = nil
		tokens += r.InputLength
		requests = append(requests, r)
	}
	require.NoError(b, lines.Err())
	return requests
}

// prompt writes the tokens of a request over an older one's. An identity stands
// for the same tokens wherever it comes; what has none is the request's own.
func (t trace) prompt(tokens []messages.Token, r traced, number int) []messages.Token {
	tokens = tokens[:0]
	for _, run := range r.Runs {
		for id := run[0]; id < run[0]+run[1]; id++ {
			tokens = t.block(tokens, id, min(t.blockTokens, r.InputLength-len(tokens)))
		}
	}
	for len(tokens) < r.InputLength {
		tokens = t.block(tokens, 1<<30+number, min(t.blockTokens, r.InputLength-len(tokens)))
	}
	return tokens
}

// block appends n tokens that an identity determines, the first alone names it.
func (t trace) block(tokens []messages.Token, id, n int) []messages.Token {
	x := uint32(id)*2654435761 + 1
	for i := range n {
		token := messages.Token(id)
		if i > 0 {
			x = x*1664525 + 1013904223
			token = messages.Token(x >> 1)
		}
		tokens = append(tokens, token)
	}
	return tokens
}
