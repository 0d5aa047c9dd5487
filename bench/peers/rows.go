package main

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// row is one line of the table: a trace, a block size and a capacity.
type row struct {
	Trace string // file in the folder of traces
	Own   int    // tokens of a block of the trace
	Size  int    // tokens of a block of the cache, a divisor of Own
	Pages int    // blocks that the cache holds
	Limit int    // requests; 0: all
}

// rows are the published comparisons: the blocks of a trace, vLLM's default size, and
// agents whose prompts are nearly all hits. Each capacity is 5 million tokens or less, so
// that every row evicts.
var rows = []row{
	{Trace: "mooncake_conversation_h1.jsonl.gz", Own: 512, Size: 512, Pages: 10_000},
	{Trace: "claude_code_agentic_dev.jsonl.gz", Own: 64, Size: 64, Pages: 32_768, Limit: 1500},
	{Trace: "mooncake_conversation_h1.jsonl.gz", Own: 512, Size: 16, Pages: 320_000},
}

// String names a row as the table's head does.
func (r row) String() string {
	name := fmt.Sprintf("%s, %d tokens a block, %d blocks", r.Trace, r.Size, r.Pages)
	if r.Limit > 0 {
		name += fmt.Sprintf(", %d requests", r.Limit)
	}
	return name
}

// line is what a line of a trace says of the blocks of its prompt.
type line struct {
	IDs  []int64    `json:"hash_ids"`
	Runs [][2]int64 `json:"hash_runs"` // first identity and number of each run
}

// blocks are the identities of a line's blocks, in order.
func (l *line) blocks() []int64 {
	ids := l.IDs
	for _, run := range l.Runs {
		for i := range run[1] {
			ids = append(ids, run[0]+i)
		}
	}
	return ids
}

// prompts reads the requests of a row. Identities are numbered by first appearance, so
// that a block's first token, its number times Own, stays a token id.
func (r row) prompts(folder string) ([][]uint32, error) {
	file, err := os.Open(filepath.Join(folder, r.Trace))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Trace, err)
	}
	numbers := map[int64]uint32{}
	var requests [][]uint32
	in := bufio.NewScanner(plain)
	in.Buffer(nil, 64<<20)
	for in.Scan() && (r.Limit == 0 || len(requests) < r.Limit) {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", r.Trace, len(requests)+1, err)
		}
		var request []uint32
		for _, id := range l.blocks() {
			n, known := numbers[id]
			if !known {
				n = uint32(len(numbers))
				numbers[id] = n
			}
			request = append(request, n)
		}
		requests = append(requests, request)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Trace, err)
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("%s: no requests", r.Trace)
	}
	if len(numbers)*r.Own > 1<<31-1 {
		return nil, fmt.Errorf("%s: %d blocks of %d tokens have more tokens than there are ids", r.Trace,
			len(numbers), r.Own)
	}
	return requests, nil
}

// write writes the prompts of a row for the drivers: Own, Size, Pages, the number of
// requests, then for each the number of its blocks and their identities, as
// little-endian numbers of 32 bits.
func (r row) write(folder, path string) (err error) {
	requests, err := r.prompts(folder)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file)
	numbers := []uint32{uint32(r.Own), uint32(r.Size), uint32(r.Pages), uint32(len(requests))}
	for _, request := range requests {
		numbers = append(numbers, uint32(len(request)))
		numbers = append(numbers, request...)
		if err := binary.Write(out, binary.LittleEndian, numbers); err != nil {
			return err
		}
		numbers = numbers[:0]
	}
	return out.Flush()
}
