//go:build !amd64

package pool

import "github.com/kvactor/kvactor/messages"

// append is appendEach: there is assembly for amd64 alone.
func (r *run) append(pages []page, ids []messages.PageID, tail int32) (last int32, n int) {
	return r.appendEach(pages, ids, tail)
}

// append is appendEach: there is assembly for amd64 alone.
func (r *pieceRun) append(pages []page, ids []messages.PageID, tail int32) (last int32, n int) {
	return r.appendEach(pages, ids, tail)
}
