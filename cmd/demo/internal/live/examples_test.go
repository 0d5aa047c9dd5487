package live_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvactor/kvactor/cmd/demo/internal/script"
)

// examples are the scripts of a folder, with the answers beside them: the same folder is the
// test of every engine and the manual of the protocol.
//
//	01-whole-blocks.jsonl     what is asked, with comments
//	01-whole-blocks.answers   what is right, one line a request
//
// A file of answers may leave out fields that its example is not about: those
// that stand there must be right. With KVACTOR_REWRITE set in the environment,
// answers that are right are written over those of the file, complete then.
type examples struct {
	folder string
	open   script.OpenFunc
	// without names scripts that ask for what the engine at hand has not.
	without []string
}

// run runs each script as a subtest. A folder without scripts is an error: it
// is the wrong one.
func (e examples) run(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(e.folder, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no scripts in %s", e.folder)
	}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".jsonl")
		if slices.Contains(e.without, filepath.Base(base)) {
			continue
		}
		t.Run(filepath.Base(base), func(t *testing.T) { e.one(t, base) })
	}
}

func (e examples) one(t *testing.T, base string) {
	requests, err := os.ReadFile(base + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(base + ".answers")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := script.Run(bytes.NewReader(requests), &got, e.open); err != nil {
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
