package model

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/windows"
)

// States lie in the pages of the state pools as float32 numbers, layer behind layer, and nowhere
// else: a step reads and writes them there.

// stateElement is how states are stored.
var stateElement = attention.Element{Type: windows.Float32}

// advance runs a layer with a state over the new tokens of each sequence, one after
// the other: step gets the state after the tokens before, and changes it.
func (e *Executor) advance(size int, step func(state []float32, row int)) {
	row := 0
	for _, s := range e.step {
		pages := e.statePages(s, e.block)
		first := e.stateBytes(pages[s.State], e.block, size)
		state, direct := stateElement.View(first, size)
		if direct = direct && len(pages) == 1; !direct {
			state = e.buffer(bufferState, size)
			stateElement.Decode(state, first)
		}
		last := 0
		for i := range s.Tokens {
			step(state, row)
			if last = s.State + i + 1; last < len(pages) {
				stateElement.Encode(e.stateBytes(pages[last], e.block, size), state)
			}
			row++
		}
		if !direct && last >= len(pages) {
			stateElement.Encode(e.stateBytes(pages[0], e.block, size), state)
		}
	}
}

// statePages are the pages of a sequence in the state pool of a block.
func (e *Executor) statePages(s *Sequence, block int) [][]byte {
	pages := s.Pages[e.statePlaces[block].pool]
	if s.State >= len(pages) || pages[s.State] == nil {
		panic(fmt.Sprintf("model: a sequence has no page %d of states in pool %d", s.State,
			e.statePlaces[block].pool))
	}
	return pages
}

// stateBytes is where the state of a block's layer lies in a page.
func (e *Executor) stateBytes(page []byte, block, size int) []byte {
	at := e.statePlaces[block]
	return page[4*at.index*size : 4*(at.index+1)*size]
}
