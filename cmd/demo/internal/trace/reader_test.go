package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const twoLines = `{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [7, 8, 9]}
{"output_length":0,"hash_ids":[7,8,10,11],"input_length":2048,"timestamp":27,"unknown":{"a":[1,2]}}
`

func zipped(t testing.TB, text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// readAll copies every request; the error is that of the first bad line.
func readAll(r *Reader) ([]Request, error) {
	var all []Request
	for {
		next, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		one := *next
		one.Blocks = append([]int32(nil), next.Blocks...)
		all = append(all, one)
	}
}

func TestReaderHashIDs(t *testing.T) {
	for name, file := range map[string][]byte{"plain": []byte(twoLines), "gzip": zipped(t, twoLines)} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader("t", bytes.NewReader(file))
			require.NoError(t, err)
			assert.Equal(t, 512, r.TokensPerBlock())
			all, err := readAll(r)
			require.NoError(t, err)
			assert.Equal(t, []Request{
				{Line: 1, PromptTokens: 1030, AnswerTokens: 5, Blocks: []int32{0, 1, 2}},
				{Line: 2, Arrival: 27 * time.Millisecond, PromptTokens: 2048, Blocks: []int32{0, 1, 3, 4}},
			}, all)
			assert.Equal(t, 5, r.Distinct())
		})
	}
}

func TestReaderHashRuns(t *testing.T) {
	text := `{"timestamp":5,"input_length":8,"output_length":30,"hash_runs":[],"suite":"x"}

{"timestamp":3,"input_length":84,"output_length":1,"hash_runs":[ [0, 3] , [9,2] ]}
{"timestamp":9,"input_length":81,"output_length":1,"hash_runs":[[0,3],[3,2]]}`
	r, err := NewReader("t", strings.NewReader(text))
	require.NoError(t, err)
	assert.Equal(t, 16, r.TokensPerBlock())
	all, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, all, 3)
	assert.Empty(t, all[0].Blocks)
	assert.Equal(t, []int32{0, 1, 2, 3, 4}, all[1].Blocks)
	assert.Equal(t, 3, all[1].Line)
	assert.Equal(t, 5*time.Millisecond, all[1].Arrival, "time never goes back")
	assert.Equal(t, []int32{0, 1, 2, 5, 6}, all[2].Blocks)
}

// bad is a file that is refused, and what the error says.
type bad struct {
	file []byte
	want string
}

const goodLine = `{"timestamp":0,"input_length":2048,"output_length":1,"hash_ids":[0,1,2,3]}` + "\n"

// badFiles are refused as a whole.
func badFiles(t *testing.T) map[string]bad {
	cut := zipped(t, strings.Repeat(goodLine, 1000))
	cut = cut[:len(cut)-9]
	damaged := zipped(t, goodLine)
	damaged[len(damaged)-6] ^= 1
	return map[string]bad{
		"empty":         {nil, "holds no requests"},
		"blank":         {[]byte("\n \n"), "holds no requests"},
		"csv":           {[]byte("TIMESTAMP,ContextTokens,GeneratedTokens\n"), "no block identities"},
		"gzip cut off":  {cut, "f:1001: the gzip stream ends too early"},
		"only a magic":  {[]byte{0x1f, 0x8b}, "gzip stream"},
		"gzip checksum": {damaged, "f:2: the gzip stream is damaged"},
		"no JSON":       {[]byte(goodLine + "hello\n"), "f:2: no JSON"},
		"cut-off line":  {[]byte(goodLine[:40]), "f:1: no JSON"},
		"no object":     {[]byte("[1]\n"), "f:1: the line is a JSON array"},
	}
}

// badLines are refused for what a line says.
func badLines() map[string]bad {
	line := func(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }
	return map[string]bad{
		"wrong type": {line(`{"timestamp":0,"input_length":"a"}`),
			"a string does not belong in input_length"},
		"no length": {line(`{"timestamp":0,"output_length":1,"hash_ids":[]}`), "input_length is missing"},
		"negative": {line(`{"timestamp":0,"input_length":-4,"output_length":1,"hash_ids":[]}`),
			"input_length -4 is below 0"},
		"negative out": {
			line(`{"timestamp":0,"input_length":4,"output_length":-1,"hash_ids":[]}`),
			"output_length -1 is below 0",
		},
		"negative time": {
			line(`{"timestamp":-1,"input_length":4,"output_length":1,"hash_ids":[]}`), "timestamp -1",
		},
		"huge": {line(`{"timestamp":0,"input_length":99999999999,"output_length":1,"hash_ids":[]}`),
			"is above"},
		"no identities": {
			line(`{"timestamp":0,"input_length":4,"output_length":1}`), "either hash_ids or hash_runs",
		},
		"both": {
			line(`{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":[],"hash_runs":[]}`),
			"either hash_ids or hash_runs"},
		"fraction": {line(`{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":[1.5]}`),
			"a number 1.5 does not belong in hash_ids"},
		"text": {line(`{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":["a"]}`),
			"a string does not belong in hash_ids"},
		"no list": {line(`{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":7}`),
			"a number does not belong in hash_ids"},
		"negative id": {line(`{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":[-1]}`),
			"block -1 is negative"},
		"odd run": {
			line(`{"timestamp":0,"input_length":64,"output_length":1,"hash_runs":[[1,2],[3]]}`),
			"no list of pairs"},
		"empty run": {line(`{"timestamp":0,"input_length":64,"output_length":1,"hash_runs":[[1,0]]}`),
			"run [1,0]"},
		"endless run": {
			line(`{"timestamp":0,"input_length":64,"output_length":1,"hash_runs":[[0,9000000000000]]}`),
			"more than"},
		"too many": {
			line(`%s{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[0,1,2,3,4,5,6,7,8]}`,
				strings.Repeat(goodLine, 80000)), "f:80001: 9 blocks of 512 tokens"},
		"more than fits": {
			line(`{"timestamp":0,"input_length":3,"output_length":1,"hash_ids":[0,1,2,3]}`),
			"more than a prompt of 3 tokens",
		},
		"other parent": {
			line(`%s{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[0,2]}`, goodLine),
			"f:2: block 2 comes behind block 0, but came behind block 1 before"},
		"other start": {
			line(`%s{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[2]}`, goodLine),
			"behind nothing, but came behind block 1"},
		"twice": {line(`{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[5,5]}`),
			"block 5 comes behind block 5"},
	}
}

func TestReaderRefusesInOneLine(t *testing.T) {
	cases := badFiles(t)
	maps.Copy(cases, badLines())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader("f", bytes.NewReader(c.file))
			if err == nil {
				_, err = readAll(r)
			}
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "\n")
			assert.True(t, strings.HasPrefix(err.Error(), "f:"), err.Error())
		})
	}
}

func TestOpenRefusesPaths(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "no such file")
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "is a directory")
}

// A line longer than the look-ahead buffer is read whole.
func TestReaderLongLine(t *testing.T) {
	const n = 900_000
	var text strings.Builder
	text.WriteString(`{"timestamp":0,"input_length":14400000,"output_length":1,"hash_runs":[`)
	for i := range n {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "[%d,1]", i)
	}
	text.WriteString("]}\n" +
		`{"timestamp":0,"input_length":64,"output_length":1,"hash_runs":[[0,4]]}` + "\n")
	require.Greater(t, text.Len(), lookahead)
	r, err := NewReader("t", strings.NewReader(text.String()))
	require.NoError(t, err)
	r.blockTokens = 16 // the only line that tells lies beyond the look-ahead
	all, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Len(t, all[0].Blocks, n)
	assert.Equal(t, []int32{0, 1, 2, 3}, all[1].Blocks)
}

func TestBlockSize(t *testing.T) {
	cases := []struct {
		line string
		want int
	}{
		{`{"timestamp":0,"input_length":6758,"output_length":1,"hash_ids":[0,1,2,3,4,5,6,7,8,9,10,11,12,13]}`, 512},
		{`{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[0]}`, 512},
		{`{"timestamp":0,"input_length":900,"output_length":1,"hash_ids":[0]}`, 1024},
		{`{"timestamp":0,"input_length":64,"output_length":1,"hash_ids":[0,1,2,3]}`, 16},
		{`{"timestamp":0,"input_length":59329,"output_length":1,"hash_runs":[[0,927]]}`, 64},
		{`{"timestamp":0,"input_length":324,"output_length":1,"hash_runs":[[0,20]]}`, 16},
		{`{"timestamp":0,"input_length":8,"output_length":1,"hash_runs":[]}`, 64},
	}
	for _, c := range cases {
		r, err := NewReader("t", strings.NewReader(c.line))
		require.NoError(t, err)
		assert.Equal(t, c.want, r.TokensPerBlock(), c.line)
	}
}

// The published files, with the counts that their description gives.
func TestSharedTraces(t *testing.T) {
	root := "../../../../../shared/traces"
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the shared traces are not here: ", err)
	}
	cases := []struct {
		file                                string
		requests, blockTokens, looked, kept int
	}{
		{"mooncake_conversation_h1", 5606, 512, 144280, 95189},
		{"mooncake_synthetic", 3993, 512, 121877, 43924},
		{"claude_code_agentic_dev", 5940, 64, 8013402, 303055},
		{"agent_runs_lmcache", 1619, 16, 249770, 25075},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			r, err := Open(filepath.Join(root, c.file+".jsonl.gz"))
			require.NoError(t, err)
			defer r.Close()
			requests, looked := 0, 0
			for {
				next, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				requests++
				looked += len(next.Blocks)
			}
			assert.Equal(t, c.blockTokens, r.TokensPerBlock())
			assert.Equal(t, c.requests, requests)
			assert.Equal(t, c.looked, looked)
			assert.Equal(t, c.kept, r.Distinct())
		})
	}
	_, err := Open(filepath.Join(root, "azure_llm_2023_conv.csv.gz"))
	require.ErrorContains(t, err, "no block identities")
}

// FuzzReader holds the reader to its promises on any bytes: it never panics,
// and what it gives out keeps to the lengths.
func FuzzReader(f *testing.F) {
	f.Add([]byte(twoLines))
	f.Add(zipped(f, twoLines))
	f.Add([]byte(`{"timestamp":9,"input_length":324,"output_length":197,"hash_runs":[[0,9],[104,3]]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := newReader("f", bytes.NewReader(file), 1<<12) // small, to be fast
		if err != nil {
			return
		}
		before := map[int32]int32{}
		last := time.Duration(0)
		for {
			next, err := r.Next()
			if err != nil {
				return
			}
			if next.Arrival < last || next.PromptTokens < 0 || next.AnswerTokens < 0 {
				t.Fatalf("request %+v", next)
			}
			last = next.Arrival
			full := next.PromptTokens + r.TokensPerBlock() - 1
			if len(next.Blocks) > full/r.TokensPerBlock() {
				t.Fatalf("%d blocks for %d tokens", len(next.Blocks), next.PromptTokens)
			}
			previous := int32(-1)
			for _, b := range next.Blocks {
				if p, known := before[b]; known && p != previous {
					t.Fatalf("block %d behind %d and %d", b, p, previous)
				}
				before[b] = previous
				previous = b
			}
		}
	})
}
