package pool

import "github.com/kvactor/kvactor/messages"

// checkedPages is the number of page numbers that outOfRange compares in a turn.
const checkedPages = 8

// outOfRange tells whether one of n numbers, a multiple of checkedPages, is neither NoPage nor
// below pages. It is implemented in assembly, which compares four numbers in an instruction.
//
//go:noescape
func outOfRange(first *messages.PageID, n int, pages uint32) bool
