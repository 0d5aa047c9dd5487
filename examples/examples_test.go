package examples

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Programs of the everyday loop import package kvactor and those of devices, and no
// other package of the module.
func TestHostsImportOnePackage(t *testing.T) {
	for _, name := range []string{"minimal", "batching"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(name, "main.go"), nil,
			parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			below, ours := strings.CutPrefix(path, "github.com/kvactor/kvactor/")
			assert.True(t, !ours || strings.HasPrefix(below, "gpu"), "%s imports %s", name, path)
		}
	}
}

// Every program prints what its output.txt says, and nothing to standard error.
func TestProgramsPrintTheirOutput(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(programs), 5)
	bin := t.TempDir()
	build, err := exec.Command("go", "build", "-o", bin, "./...").CombinedOutput()
	require.NoError(t, err, "%s", build)
	for _, file := range programs {
		name := filepath.Dir(file)
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(name, "output.txt"))
			require.NoError(t, err)
			got, err := exec.Command(filepath.Join(bin, name)).CombinedOutput()
			require.NoError(t, err, "%s", got)
			assert.Equal(t, string(want), string(got))
		})
	}
}
