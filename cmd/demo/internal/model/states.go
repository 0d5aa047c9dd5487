package model

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/windows"
)

// States lie in the working pages of the state pools as float32 numbers, layer
// behind layer, and nowhere else: a step reads and writes them there.

// stateElement is how states are stored.
var stateElement = attention.Element{Type: windows.Float32}

// advance runs a layer with a state over the new tokens of each sequence, one after
// the other: step gets the state after the tokens before, and changes it.
func (e *Executor) advance(size int, step func(state []float32, row int)) {
	row := 0
	for _, s := range e.step {
		page := e.stateBytes(s, e.block, size)
		state, direct := stateElement.View(page, size)
		if s.Drafts || !direct {
			state, direct = e.buffer(bufferState, size), false
			stateElement.Decode(state, page)
		}
		for i := range s.Tokens {
			step(state, row)
			if s.Drafts {
				s.States[i] = append(s.States[i], state...)
			}
			row++
		}
		if !s.Drafts && !direct {
			stateElement.Encode(page, state)
		}
	}
}

// stateBytes is where the state of a block's layer lies.
func (e *Executor) stateBytes(s *Sequence, block, size int) []byte {
	at := e.statePlaces[block]
	if len(s.Pages[at.pool]) == 0 || s.Pages[at.pool][0] == nil {
		panic(fmt.Sprintf("model: a sequence has no working page in pool %d", at.pool))
	}
	return s.Pages[at.pool][0][4*at.index*size : 4*(at.index+1)*size]
}

// WriteStates makes the states after the first n tokens of a step with Drafts those
// of the sequence.
func (e *Executor) WriteStates(s *Sequence, n int) {
	states := s.States[n-1]
	for i := range e.model.blocks {
		if r, ok := e.model.blocks[i].mixer.(recurrent); ok {
			size := r.stateSize()
			stateElement.Encode(e.stateBytes(s, i, size), states[:size])
			states = states[size:]
		}
	}
}
