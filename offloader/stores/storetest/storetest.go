// Package storetest has the tests that every implementation of stores.Store must pass.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
)

// Run tests the stores that open returns. Each call of open returns a store of the
// same objects: what one wrote the next finds, also after a Close of the first.
func Run(t *testing.T, open func(t *testing.T) stores.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s stores.Store)
	}{
		{"PutThenGet", putThenGet},
		{"Replace", replace},
		{"MissingKeys", missingKeys},
		{"Delete", deleteSome},
		{"Sizes", sizes},
		{"EmptyBatch", emptyBatch},
		{"Limits", limits},
		{"OwnsNothing", ownsNothing},
		{"DeadContext", deadContext},
		{"Concurrent", concurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			c.test(t, s)
			assert.NoError(t, s.Close())
		})
	}
	t.Run("OutlivesClose", func(t *testing.T) { outlivesClose(t, open) })
}

// Objects returns n objects with bodies of size bytes, whose keys and bodies depend on
// the name.
func Objects(name string, n, size int) []stores.Object {
	all := make([]stores.Object, n)
	for i := range all {
		key := sha256.Sum256(fmt.Append(nil, name, i))
		body := make([]byte, size)
		_, _ = rand.NewChaCha8(key).Read(body) // never an error
		all[i] = stores.Object{Key: key, Body: body}
	}
	return all
}

// Keys returns the keys of objects.
func Keys(objects []stores.Object) []stores.Key {
	keys := make([]stores.Key, len(objects))
	for i := range objects {
		keys[i] = objects[i].Key
	}
	return keys
}

// expect asserts that the store has exactly these bodies, nil: none.
func expect(t *testing.T, s stores.Store, keys []stores.Key, want [][]byte) {
	t.Helper()
	got, found := make([][]byte, len(keys)), make([]bool, len(keys))
	require.NoError(t, s.Get(t.Context(), keys, got))
	require.NoError(t, s.Has(t.Context(), keys, found))
	for i := range keys {
		assert.Truef(t, bytes.Equal(want[i], got[i]), "object %d: %d bytes, not %d, or others", i,
			len(got[i]), len(want[i]))
		assert.Equal(t, want[i] == nil, got[i] == nil, "object %d", i)
		assert.Equal(t, want[i] != nil, found[i], "object %d", i)
	}
}

func bodies(objects []stores.Object) [][]byte {
	all := make([][]byte, len(objects))
	for i := range objects {
		all[i] = objects[i].Body
	}
	return all
}

func putThenGet(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 100, 1000)
	require.NoError(t, s.Put(t.Context(), objects))
	expect(t, s, Keys(objects), bodies(objects))
}

func replace(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 2, 100)
	require.NoError(t, s.Put(t.Context(), objects))
	objects[0].Body = []byte("another")
	require.NoError(t, s.Put(t.Context(), objects[:1]))
	expect(t, s, Keys(objects), bodies(objects))
}

func missingKeys(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 3, 10)
	require.NoError(t, s.Put(t.Context(), objects[1:2]))
	expect(t, s, Keys(objects), [][]byte{nil, objects[1].Body, nil})
}

func deleteSome(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 4, 10)
	require.NoError(t, s.Put(t.Context(), objects[:3]))
	require.NoError(t, s.Delete(t.Context(), Keys(objects[1:])), "the last was never there")
	expect(t, s, Keys(objects), [][]byte{objects[0].Body, nil, nil, nil})
	require.NoError(t, s.Delete(t.Context(), Keys(objects)))
}

func sizes(t *testing.T, s stores.Store) {
	var objects []stores.Object
	for _, size := range []int{1, 511, 512, 64 << 10, 1<<20 + 3} {
		objects = append(objects, Objects(fmt.Sprint(t.Name(), size), 1, size)...)
	}
	require.NoError(t, s.Put(t.Context(), objects))
	expect(t, s, Keys(objects), bodies(objects))
}

func emptyBatch(t *testing.T, s stores.Store) {
	assert.NoError(t, s.Put(t.Context(), nil))
	assert.NoError(t, s.Get(t.Context(), nil, nil))
	assert.NoError(t, s.Has(t.Context(), nil, nil))
	assert.NoError(t, s.Delete(t.Context(), nil))
}

func limits(t *testing.T, s stores.Store) {
	many := Objects(t.Name(), stores.MaxBatch+1, 1)
	keys := Keys(many)
	assert.Error(t, s.Put(t.Context(), many))
	assert.Error(t, s.Get(t.Context(), keys, make([][]byte, len(keys))))
	assert.Error(t, s.Has(t.Context(), keys, make([]bool, len(keys))))
	assert.Error(t, s.Delete(t.Context(), keys))
	assert.Error(t, s.Get(t.Context(), keys[:2], make([][]byte, 1)), "two keys, one place")
	assert.Error(t, s.Put(t.Context(), []stores.Object{{Key: keys[0]}}), "no body")

	require.NoError(t, s.Put(t.Context(), many[1:]), "a full batch")
	expect(t, s, keys[:stores.MaxBatch], append([][]byte{nil}, bodies(many[1:stores.MaxBatch])...))
	require.NoError(t, s.Delete(t.Context(), keys[1:]))
}

// ownsNothing changes what it gave to the store and what it got from it.
func ownsNothing(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 1, 100)
	want := bytes.Clone(objects[0].Body)
	require.NoError(t, s.Put(t.Context(), objects))
	clear(objects[0].Body)
	got := make([][]byte, 1)
	require.NoError(t, s.Get(t.Context(), Keys(objects), got))
	clear(got[0])
	expect(t, s, Keys(objects), [][]byte{want})
}

// deadContext fails every item, and answers of the call before are not left in place.
func deadContext(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 2, 10)
	require.NoError(t, s.Put(t.Context(), objects))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, found := [][]byte{{1}, {1}}, []bool{true, true}
	for name, err := range map[string]error{
		"put":    s.Put(ctx, objects),
		"get":    s.Get(ctx, Keys(objects), got),
		"has":    s.Has(ctx, Keys(objects), found),
		"delete": s.Delete(ctx, Keys(objects)),
	} {
		require.Error(t, err, name)
		assert.Error(t, stores.Failed(err, 1), name)
	}
	assert.Equal(t, [][]byte{nil, nil}, got)
	assert.Equal(t, []bool{false, false}, found)
}

// concurrent writes, reads and removes the same objects from several goroutines: what
// is read is one of the bodies written, as a whole.
func concurrent(t *testing.T, s stores.Store) {
	objects := Objects(t.Name(), 20, 3000)
	keys := Keys(objects)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 10 {
				if g == 0 {
					assert.NoError(t, s.Delete(t.Context(), keys[:5]))
				}
				assert.NoError(t, s.Put(t.Context(), objects))
				got := make([][]byte, len(keys))
				assert.NoError(t, s.Get(t.Context(), keys, got))
				for i := range got {
					assert.Truef(t, got[i] == nil || bytes.Equal(objects[i].Body, got[i]),
						"object %d is neither whole nor missing", i)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Put(t.Context(), objects))
	expect(t, s, keys, bodies(objects))
}

func outlivesClose(t *testing.T, open func(t *testing.T) stores.Store) {
	objects := Objects(t.Name(), 3, 50)
	first := open(t)
	require.NoError(t, first.Put(t.Context(), objects))
	require.NoError(t, first.Close())
	second := open(t)
	expect(t, second, Keys(objects), bodies(objects))
	require.NoError(t, second.Close())
}
