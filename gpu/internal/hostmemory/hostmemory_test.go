package hostmemory

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFree(t *testing.T) {
	at := t.TempDir()
	written := func(name, text string) string {
		path := filepath.Join(at, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	machine := written("meminfo",
		"MemTotal:       20 kB\nMemFree:  3 kB\nMemAvailable:   8 kB\nBuffers: 1 kB\n")
	assert.EqualValues(t, 8192, free(machine, filepath.Join(at, "none")))
	assert.EqualValues(t, 8192, free(machine, written("unlimited", "max\n")))
	assert.EqualValues(t, 5000, free(machine, written("limited", "5000\n")))
	assert.Zero(t, free(filepath.Join(at, "none"), ""))
	assert.Zero(t, free(written("other", "MemTotal: 20 kB\n"), ""))
	if runtime.GOOS == "linux" {
		assert.Positive(t, Free())
	}
}
