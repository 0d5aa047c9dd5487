package stores_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/storetest"
)

func TestMemory(t *testing.T) {
	var m stores.Memory
	storetest.Run(t, func(*testing.T) stores.Store { return &m })
}

func TestMemoryCountsAndFails(t *testing.T) {
	var m stores.Memory
	objects := storetest.Objects(t.Name(), 3, 10)
	require.NoError(t, m.Put(t.Context(), objects))
	require.NoError(t, m.Put(t.Context(), objects[:1]))
	n, bytes := m.Len()
	assert.Equal(t, 3, n)
	assert.EqualValues(t, 30, bytes)

	m.Fail(2)
	assert.Error(t, m.Put(t.Context(), objects))
	assert.Error(t, m.Delete(t.Context(), storetest.Keys(objects)))
	require.NoError(t, m.Delete(t.Context(), storetest.Keys(objects[:2])))
	n, bytes = m.Len()
	assert.Equal(t, 1, n)
	assert.EqualValues(t, 10, bytes)
}

func TestBatchErrors(t *testing.T) {
	assert.NoError(t, stores.Join([]error{nil, nil}))
	odd := errors.New("odd")
	err := stores.Join([]error{nil, odd, nil})
	assert.EqualError(t, err, "1 of 3 objects: odd")
	assert.ErrorIs(t, err, odd)
	assert.NoError(t, stores.Failed(err, 0))
	assert.ErrorIs(t, stores.Failed(err, 1), odd)
	assert.ErrorIs(t, stores.Failed(context.Canceled, 1), context.Canceled)
	assert.NoError(t, stores.Failed(nil, 1))
}
