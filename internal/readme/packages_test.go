package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parts are packages that can be imported and are no API: parts of the engine, and of its tests.
var parts = []string{
	"actors/coordinator", "actors/coordinator/sequence", "actors/mailbox", "offloader", "pool", "tree",
	"gpu/cuda/torchtest", "gpu/devicetest", "gpu/group/simgroup",
}

// The comment of the root package names the packages that hosts import; the others are internal, or
// parts of the engine.
func TestTheRootNamesTheAPI(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "doc.go"))
	require.NoError(t, err)
	_, named, ok := strings.Cut(string(text), "// # Packages\n")
	require.True(t, ok)
	named, _, _ = strings.Cut(named, "// # Hosts that are actors\n")
	words := strings.FieldsFunc(named, func(r rune) bool {
		return strings.ContainsRune(" \n;:,[]", r)
	})
	for i, word := range words {
		words[i] = strings.TrimPrefix(word, "github.com/kvactor/kvactor/")
	}
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() &&
			(slices.Contains([]string{"cmd", "bench", "examples", "python", "docs"}, name) ||
				slices.Contains([]string{"internal", "testdata"}, entry.Name()) ||
				len(entry.Name()) > 2 && entry.Name()[0] == '.'):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
			strings.Contains(name, "/"):
			found[filepath.ToSlash(filepath.Dir(name))] = true
		}
		return nil
	}))
	for name := range found {
		below := slices.ContainsFunc(
			[]string{"events/publish/", "offloader/stores/", "windows/hfconfig/"}, func(dir string) bool {
				return strings.HasPrefix(name, dir)
			})
		assert.True(t, below || slices.Contains(words, name) != slices.Contains(parts, name),
			"%s is either API or a part of the engine", name)
	}
	for _, word := range append(slices.DeleteFunc(words, func(w string) bool {
		return !strings.Contains(w, "/") || w == "//"
	}), parts...) {
		assert.True(t, found[word], "%s is a package", word)
	}
}
