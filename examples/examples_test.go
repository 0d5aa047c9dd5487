package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
