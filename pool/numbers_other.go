//go:build !amd64

package pool

import (
	"unsafe"

	"github.com/kvactor/kvactor/messages"
)

// checkedPages is the number of page numbers that outOfRange compares in a turn.
const checkedPages = 4

// outOfRange tells whether one of n numbers, a multiple of checkedPages, is neither NoPage nor
// below pages. The loop has no branch for a number, since there is a wrong one only after a
// bug.
//
// Numbers are shifted by one as unsigned numbers: NoPage becomes 0, valid pages 1 to pages, and
// every other one is above, so that the difference is negative exactly for a wrong one. The
// signs are collected with an or and tested once.
func outOfRange(first *messages.PageID, n int, pages uint32) bool {
	signs := int64(0)
	for rest := unsafe.Slice(first, n); len(rest) >= checkedPages; rest = rest[checkedPages:] {
		r := (*[checkedPages]messages.PageID)(rest)
		signs |= int64(pages) - int64(uint32(r[0]+1))
		signs |= int64(pages) - int64(uint32(r[1]+1))
		signs |= int64(pages) - int64(uint32(r[2]+1))
		signs |= int64(pages) - int64(uint32(r[3]+1))
	}
	return signs < 0
}
