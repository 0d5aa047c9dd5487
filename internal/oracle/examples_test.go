package oracle_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples of the script protocol lie beside the repository; they are the
// only answers that were not written here.
const examples = "../../../shared/examples"

func TestExamples(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(examples, "*.jsonl"))
	states, _ := filepath.Glob(filepath.Join(examples+"-new", "*-recurrent-states.jsonl"))
	files = append(files, states...)
	stores, _ := filepath.Glob(filepath.Join(examples+"-new", "*-stores.jsonl"))
	files = append(files, stores...)
	if len(files) == 0 {
		t.Skip("the script examples are not beside the repository")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			questions, err := os.ReadFile(file)
			require.NoError(t, err)
			text, err := os.ReadFile(strings.TrimSuffix(file, ".jsonl") + ".answers")
			require.NoError(t, err)
			answers := strings.Split(strings.TrimSpace(string(text)), "\n")
			s, names := &script{}, newRenaming()
			for _, l := range strings.Split(string(questions), "\n") {
				if l == "" || l[0] == '#' {
					continue
				}
				var want object
				require.NoError(t, json.Unmarshal([]byte(answers[0]), &want))
				answers = answers[1:]
				got := s.do(l)
				require.Empty(t, names.compare(want, got, ""), "%s\nwant %v\ngot  %v", l, want, got)
			}
			require.Empty(t, answers)
		})
	}
}

// renaming compares answers up to page numbers, which need only agree within
// one answer and pool, and hashes, which must agree from answer to answer.
type renaming struct{ hashes, back map[string]string }

func newRenaming() *renaming {
	return &renaming{map[string]string{}, map[string]string{}}
}

// compare gives the first difference.
func (r *renaming) compare(want, got any, path string) string {
	here := &renaming{map[string]string{}, map[string]string{}}
	return r.differ(want, got, path, here)
}

func (r *renaming) differ(want, got any, path string, pages *renaming) string {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok || len(g) != len(w) && path != ".error" && !strings.HasSuffix(path, "error") {
			return fmt.Sprintf("%s: want %v, got %v", path, want, got)
		}
		for _, k := range sortedKeys(w) {
			if k == "message" || k == "checked_pages" {
				continue
			}
			if d := r.differ(w[k], g[k], path+"."+k, pages); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s: want %v, got %v", path, want, got)
		}
		for i := range w {
			if d := r.differ(w[i], g[i], path, pages); d != "" {
				return fmt.Sprintf("%d: %s", i, d)
			}
		}
		return ""
	}
	a, b := fmt.Sprint(want), fmt.Sprint(got)
	switch {
	case strings.Contains(path, ".tables.") || strings.Contains(path, ".new_pages."):
		if (a == "-1") != (b == "-1") || !pages.same(path+a, path+b) {
			return fmt.Sprintf("%s: page %s is not page %s", path, a, b)
		}
	case want != nil &&
		(strings.HasSuffix(path, "hash") || strings.HasSuffix(path, "hashes") ||
			strings.HasSuffix(path, "parent")):
		if !r.same(a, b) {
			return fmt.Sprintf("%s: hash %s is not hash %s", path, a, b)
		}
	case a != b:
		return fmt.Sprintf("%s: want %s, got %s", path, a, b)
	}
	return ""
}

// same reports whether two names can stand for one thing.
func (r *renaming) same(a, b string) bool {
	if r.hashes[a] == "" && r.back[b] == "" {
		r.hashes[a], r.back[b] = b, a
	}
	return r.hashes[a] == b && r.back[b] == a
}
