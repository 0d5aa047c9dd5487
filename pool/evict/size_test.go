package evict

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestSizes holds the memory that the package comment states.
func TestSizes(t *testing.T) {
	assert.EqualValues(t, 40, unsafe.Sizeof(Page{}))
	assert.LessOrEqual(t, unsafe.Sizeof(piece{}), uintptr(128))
}
