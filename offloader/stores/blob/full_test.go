//go:build linux

package blob_test

import (
	"io/fs"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/storetest"
)

// fileLimit is beyond what the tests of the package and their log write otherwise.
const fileLimit = 8 << 20

// limitFiles makes writes fail that go beyond fileLimit bytes of a file, as on a full disk: a part
// of the file is written.
func limitFiles(t *testing.T) (end func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limited := syscall.Rlimit{Cur: fileLimit, Max: before.Max}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited))
	return func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) }
}

// An object that cannot be written as a whole is not there at all, and leaves no file.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	objects := append(storetest.Objects(t.Name(), 2, fileLimit+3000),
		storetest.Objects("small", 1, 10)...)
	keys := storetest.Keys(objects)

	end := limitFiles(t)
	err := s.Put(t.Context(), objects)
	end()
	assert.ErrorIs(t, stores.Failed(err, 0), syscall.EFBIG)
	assert.Error(t, stores.Failed(err, 1))
	assert.NoError(t, stores.Failed(err, 2))
	found := make([]bool, 3)
	require.NoError(t, s.Has(t.Context(), keys, found))
	assert.Equal(t, []bool{false, false, true}, found)
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			files++
		}
		return err
	}))
	assert.Equal(t, 1, files, "with those that were begun")

	require.NoError(t, s.Put(t.Context(), objects))
	require.NoError(t, s.Has(t.Context(), keys, found))
	assert.Equal(t, []bool{true, true, true}, found)

	// What was there before stays as it was.
	end = limitFiles(t)
	assert.Error(t, s.Put(t.Context(), objects[:1]))
	end()
	bodies := make([][]byte, 1)
	require.NoError(t, s.Get(t.Context(), keys[:1], bodies))
	assert.Equal(t, objects[0].Body, bodies[0])
}
