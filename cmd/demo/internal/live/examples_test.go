package live_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvactor/kvactor/cmd/demo/internal/live"
	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

// playExamples runs each script of a folder as a subtest and compares the answers with those
// beside it: the same folder is the test of the engine and the manual of the protocol. A folder
// without scripts is an error: it is the wrong one.
//
//	01-whole-blocks.jsonl     what is asked, with comments
//	01-whole-blocks.answers   what is right, one line a request
//
// A file of answers may leave out fields that its example is not about: those
// that stand there must be right. With KVACTOR_REWRITE set in the environment,
// answers that are right are written over those of the file, complete then.
func playExamples(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no scripts in %s", folder)
	}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".jsonl")
		t.Run(filepath.Base(base), func(t *testing.T) { playExample(t, base) })
	}
}

func playExample(t *testing.T, base string) {
	requests, err := os.ReadFile(base + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(base + ".answers")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := script.Run(bytes.NewReader(requests), &got, live.Open); err != nil {
		t.Fatal(err)
	}
	if err := equalAnswers(got.Bytes(), want, protocol); err != nil {
		t.Error(err)
		return
	}
	if os.Getenv("KVACTOR_REWRITE") != "" {
		if err := os.WriteFile(base+".answers", got.Bytes(), 0o644); err != nil {
			t.Error(err)
		}
	}
}
