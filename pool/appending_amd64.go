package pool

import "github.com/kvactor/kvactor/messages"

// append is appendEach, which does short runs: there the call of assembly costs more than it
// saves.
func (r *run) append(pages []page, ids []messages.PageID, tail int32) (last int32, n int) {
	if len(ids) < 8 {
		return r.appendEach(pages, ids, tail)
	}
	return appendListed(pages, ids, r, tail)
}

// appendListed is appendEach in assembly, with half as many instructions: it compares fields
// that adjoin in one word, and keeps all that a run has in registers.
//
//go:noescape
func appendListed(pages []page, ids []messages.PageID, r *run, tail int32) (last int32, n int)

// append is appendEach, in assembly for all but short runs.
func (r *pieceRun) append(pages []page, ids []messages.PageID, tail int32) (last int32, n int) {
	if len(ids) < 8 {
		return r.appendEach(pages, ids, tail)
	}
	return appendOfPiece(pages, ids, r, tail)
}

// appendOfPiece is pieceRun.appendEach in assembly.
//
//go:noescape
func appendOfPiece(pages []page, ids []messages.PageID, r *pieceRun, tail int32) (last int32, n int)
