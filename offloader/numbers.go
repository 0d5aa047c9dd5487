package offloader

import "github.com/kvactor/kvactor/messages"

// numbers say which record each page of a tier has. They lie by chunks of
// pages, and there is a chunk only where a page has a record: what is under way
// is a few runs of pages, so the others cost a bit each.
type numbers struct {
	chunks []*numberChunk // by page / numberChunkPages; nil: no page there has a record
	spare  []*numberChunk // of chunks that are gone, for chunks to come
}

// numberChunk has the numbers of consecutive pages.
type numberChunk struct {
	of   [numberChunkPages]int32 // record + 1; 0: none
	used int32                   // pages that have one
}

const numberChunkPages = 64

// grow makes room for pages.
func (t *numbers) grow(pages int) {
	if n := (pages + numberChunkPages - 1) / numberChunkPages; n > len(t.chunks) {
		t.chunks = append(t.chunks, make([]*numberChunk, n-len(t.chunks))...)
	}
}

// get is the record of a page + 1, or 0.
func (t *numbers) get(p messages.PageID) int32 {
	c := t.chunks[uint32(p)/numberChunkPages]
	if c == nil {
		return 0
	}
	return c.of[uint32(p)%numberChunkPages]
}

// set gives a page without a record the record n − 1.
func (t *numbers) set(p messages.PageID, n int32) {
	at := &t.chunks[uint32(p)/numberChunkPages]
	if *at == nil {
		if top := len(t.spare) - 1; top >= 0 {
			*at, t.spare = t.spare[top], t.spare[:top]
		} else {
			*at = new(numberChunk)
		}
	}
	(*at).of[uint32(p)%numberChunkPages] = n
	(*at).used++
}

// end takes its record from a page.
func (t *numbers) end(p messages.PageID) {
	at := &t.chunks[uint32(p)/numberChunkPages]
	(*at).of[uint32(p)%numberChunkPages] = 0
	if (*at).used--; (*at).used == 0 {
		t.spare = append(t.spare, *at)
		*at = nil
	}
}
