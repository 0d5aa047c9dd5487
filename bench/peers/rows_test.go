package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// traceOf writes a compressed trace into a folder and returns a row of it.
func traceOf(t *testing.T, lines ...string) (folder string, r row) {
	t.Helper()
	var packed bytes.Buffer
	out := gzip.NewWriter(&packed)
	_, err := out.Write([]byte(strings.Join(lines, "\n") + "\n"))
	if err = firstError(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "trace.gz"), packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder, row{Trace: "trace.gz", Own: 4, Size: 2, Pages: 8}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestWrite compares the file that the drivers read with its description.
func TestWrite(t *testing.T) {
	folder, r := traceOf(t, `{"hash_ids":[70,9]}`, `{"hash_runs":[[9,2],[70,1]]}`)
	path := filepath.Join(folder, "prompts.bin")
	if err := r.write(folder, path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]uint32, len(raw)/4)
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, got); err != nil {
		t.Fatal(err)
	}
	// Numbered by first appearance: 70 is 0, 9 is 1, 10 is 2.
	if want := []uint32{4, 2, 8, 2, 2, 0, 1, 3, 1, 2, 0}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// TestWrongTraces reads traces that cannot be measured.
func TestWrongTraces(t *testing.T) {
	for _, text := range []string{"", "{", `{"hash_ids":"x"}`} {
		folder, r := traceOf(t, text)
		if _, err := r.prompts(folder); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	if _, err := (row{Trace: "none.gz"}).prompts(t.TempDir()); err == nil {
		t.Error("a file that is not there is read")
	}
}

// TestTable compares a row's table with the medians of its measurements.
func TestTable(t *testing.T) {
	of := func(hits int, seconds ...float64) (all []measurement) {
		for _, s := range seconds {
			all = append(all, measurement{Requests: 2, Blocks: 10, Hits: hits, Seconds: s})
		}
		return all
	}
	found := map[string][]measurement{"kvactor": of(200, 9e-6, 1e-6, 2e-6),
		"kvbm": of(190, 4e-6, 6e-6)}
	var out bytes.Buffer
	table(&out, rows[1], []candidate{{name: "kvactor"}, {name: "kvbm"}}, found)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := "claude_code_agentic_dev.jsonl.gz, 64 tokens a block, 32768 blocks, 1500 requests"
	if lines[0] != want {
		t.Errorf("the head is %q", lines[0])
	}
	for i, want := range map[int]string{2: "kvactor 1.0 200 1.00× 200 +0.0 %",
		3: "kvbm 2.5 500 2.50× 190 -5.0 %"} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}
