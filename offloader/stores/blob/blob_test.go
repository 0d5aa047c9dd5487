package blob_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "gocloud.dev/blob/fileblob"

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/blob"
	"github.com/kvactor/kvactor/offloader/stores/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *blob.Store {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir),
		RawQuery: "create_dir=1&metadata=skip&no_tmp_dir=1"}
	s, err := blob.Open(context.Background(), u.String(), blob.Options{Concurrency: 4})
	require.NoError(t, err)
	return s
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	storetest.Run(t, func(t *testing.T) stores.Store { return open(t, dir) })
}

// What is wrong with a URL is told from a folder that cannot be opened now.
func TestWrongURLs(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, wrong := range []string{"nowhere://bucket", "file:///x?no_such=1",
		"file://relative/path?create_dir=1"} {
		_, err := blob.Open(t.Context(), wrong, blob.Options{})
		assert.ErrorIs(t, err, stores.ErrURL, wrong)
	}
	_, err := blob.Open(t.Context(), "file://relative/path", blob.Options{})
	assert.ErrorContains(t, err, "file:///relative/path")
	require.NoError(t, os.WriteFile("file", nil, 0o600))
	_, err = blob.Open(t.Context(), "file://./file/folder", blob.Options{})
	assert.Error(t, err)
	assert.NotErrorIs(t, err, stores.ErrURL)

	s, err := blob.Open(t.Context(), "file://./here/path?create_dir=1&metadata=skip", blob.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), storetest.Objects(t.Name(), 1, 1)))
	require.NoError(t, s.Close())
	assert.DirExists(t, filepath.Join("here", "path"))
}

// A folder's URL without parameters makes the folder and writes each object as one file in it.
func TestPlainFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	s, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir), blob.Options{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Put(t.Context(), storetest.Objects(t.Name(), 1, 1)))
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	require.NoError(t, err)
	assert.Len(t, files, 1)
}

// A file that a crash of the machine has left empty is a miss, and one that cannot be
// read fails alone.
func TestDamagedFolder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	objects := storetest.Objects(t.Name(), 3, 20)
	keys := storetest.Keys(objects)
	require.NoError(t, s.Put(t.Context(), objects))

	file := func(i int) string { k := keys[i].String(); return filepath.Join(dir, k[:2], k[2:]) }
	require.NoError(t, os.Truncate(file(0), 0))
	require.NoError(t, os.Remove(file(1)))
	require.NoError(t, os.Mkdir(file(1), 0o700)) // reads as a file and fails

	found := make([]bool, 3)
	require.NoError(t, stores.Failed(s.Has(t.Context(), keys, found), 0))
	assert.Equal(t, []bool{false, false, true}, found)

	bodies := make([][]byte, 3)
	err := s.Get(t.Context(), keys, bodies)
	assert.NoError(t, stores.Failed(err, 0))
	assert.NoError(t, stores.Failed(err, 2))
	assert.Equal(t, [][]byte{nil, nil, objects[2].Body}, bodies)
}
