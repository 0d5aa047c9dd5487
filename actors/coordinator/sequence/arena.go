package sequence

import (
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// TokenCount is a number of tokens, or the index of a token in its sequence.
type TokenCount int

// BlockIndex is the index of a block in a sequence, or a number of leading blocks.
type BlockIndex int

// keptTokens is the largest prompt whose memory a slot keeps for its next sequence: 1 MiB.
const keptTokens = 1 << 18

// PageCount is a number of pages of one pool.
type PageCount int

// Arena holds sequences in slots that are used again.
type Arena struct {
	pools []windows.Pool
	// The pools are in this order: those that hold blocks of the decoder's tokens, which
	// end at tokenPools, the state pools, which end at selfPools, and the cross pools.
	tokenPools, selfPools int
	tokensPerBlock        int
	firstGeneration       uint32
	slots                 []*Sequence
	free                  []uint32 // slots of sequences that have ended; the last is used first
	generated             int64    // by sequences that have ended
	reserved              []PageCount
}

// NewArena makes an arena without sequences. firstGeneration is the generation, less
// one, of the first sequence in each slot.
func NewArena(pools []windows.Pool, tokensPerBlock int, firstGeneration uint32) *Arena {
	token, self := PoolKinds(pools)
	return &Arena{
		pools: pools, tokenPools: token, selfPools: self, tokensPerBlock: tokensPerBlock,
		firstGeneration: firstGeneration,
		reserved:        make([]PageCount, len(pools)),
	}
}

// PoolKinds says where the pools of blocks of the decoder's tokens end, and where the state pools
// behind them do. The pools after those are cross pools, matched by the input of the encoder.
func PoolKinds(pools []windows.Pool) (tokenPools, selfPools int) {
	self := len(pools)
	for self > 0 && pools[self-1].Kind == windows.KindCross {
		self--
	}
	token := self
	for token > 0 && pools[token-1].Kind == windows.KindState {
		token--
	}
	return token, self
}

// keepsAll tells whether no page of a sequence leaves a pool before its end. That is so with full
// attention, and with the working page of a state pool.
func (a *Arena) keepsAll(pool int) bool {
	return a.pools[pool].Full() || a.pools[pool].Kind == windows.KindState
}

// firstKept is the first block, sinks excepted, that a sequence with n computed tokens still
// holds in a pool.
func (a *Arena) firstKept(pool int, n TokenCount) BlockIndex {
	return BlockIndex(a.pools[pool].FirstKept(int(n)))
}

// Open gives an empty sequence that is being admitted. The arrays of the slot's
// sequence before it are used again. The stamp is that of the request that opens it.
func (a *Arena) Open(stamp uint64) *Sequence {
	var slot uint32
	if n := len(a.free); n > 0 {
		slot, a.free = a.free[n-1], a.free[:n-1]
	} else {
		slot = uint32(len(a.slots))
		a.slots = append(a.slots, &Sequence{arena: a, id: messages.SequenceID(a.firstGeneration) << 32,
			pageTables: pageTables{pools: make([]poolTables, len(a.pools))}})
	}
	s := a.slots[slot]
	// A handle of the sequence that was in the slot before has another generation.
	generation := uint32(s.id>>32) + 1
	tokens, pools, view, inputTokens := s.tokens[:0], s.pools, s.view, s.Input.Tokens[:0]
	wanted, working := s.wanted[:0], s.working[:0]
	*s = Sequence{
		arena: a, id: messages.SequenceID(generation)<<32 | messages.SequenceID(slot), running: true,
		tokens: Reopen(tokens, 1), Input: Input{Tokens: inputTokens}, opened: stamp,
		pageTables:  pageTables{pools: pools, view: view, working: working},
		checkpoints: checkpoints{wanted: wanted},
	}
	for p := range pools {
		pools[p] = poolTables{beams: Reopen(pools[p].beams[:0], 1)}
	}
	return s
}

// Reopen gives n empty slices, those that the array of lists had before where it
// had some.
func Reopen[T any](lists [][]T, n int) [][]T {
	lists = slices.Grow(lists, max(0, n-len(lists)))[:n]
	for i := range lists {
		lists[i] = lists[i][:0]
	}
	return lists
}

// End frees the slot of a sequence, and its reserve. Its references are the
// caller's to drop.
func (a *Arena) End(s *Sequence) {
	a.generated += int64(generatedBy(s))
	s.EndReserve()
	if cap(s.tokens[0]) > keptTokens {
		s.tokens[0] = nil
	}
	// The slot can be taken by the next Open; arrays stay, contents do not matter.
	s.running = false
	s.Retention, s.InputRetention, s.Session, s.retained = nil, nil, "", nil
	a.free = append(a.free, uint32(s.id))
}

// Find gives a running sequence, or the refusal of requests about it.
func (a *Arena) Find(id messages.SequenceID) (*Sequence, *messages.Refusal) {
	s := a.Holder(id)
	switch {
	case s == nil:
		return nil, refusals.New(messages.ErrUnknownSequence, "sequence %v is not running", id)
	case s.loss != NotLost:
		return nil, refusals.New(messages.ErrSequenceLost, "sequence %v was lost%v", id, s.loss)
	}
	return s, nil
}

// Holder gives the sequence that holds pages under a handle, lost or not; nil if
// there is none.
func (a *Arena) Holder(id messages.SequenceID) *Sequence {
	slot := uint32(id)
	if int(slot) >= len(a.slots) || a.slots[slot].id != id || !a.slots[slot].running {
		return nil
	}
	return a.slots[slot]
}

// Each visits all sequences in the order of their slots, those that are being
// admitted and those that are lost included.
func (a *Arena) Each(visit func(*Sequence)) {
	for _, s := range a.slots {
		if s.running {
			visit(s)
		}
	}
}

// Running is the number of sequences that Each visits.
func (a *Arena) Running() int { return len(a.slots) - len(a.free) }

// Counts are what statistics say of sequences.
type Counts struct {
	Lost int // that run
	// Generated are the tokens that were appended, less those rewound, of each beam, also of
	// sequences that have ended.
	Generated int64
}

// Counts visits all running sequences: a count in each step would cost each step.
func (a *Arena) Counts() Counts {
	n := Counts{Generated: a.generated}
	a.Each(func(s *Sequence) {
		n.Generated += int64(generatedBy(s))
		if s.IsLost() {
			n.Lost++
		}
	})
	return n
}

// Reserved is the pages of a pool that sequences have reserved for later chunks of
// their prompts.
func (a *Arena) Reserved(pool int) PageCount { return a.reserved[pool] }

// References counts, by page, the references that tables hold in a pool of so many
// pages.
func (a *Arena) References(pool, pages int) []int32 {
	n := make([]int32, pages)
	a.EachPage(pool, func(_ *Sequence, _ BlockIndex, page messages.PageID) { n[page]++ })
	return n
}

// EachPage visits every reference of every table in a pool.
func (a *Arena) EachPage(
	pool int, visit func(s *Sequence, block BlockIndex, page messages.PageID),
) {
	a.Each(func(s *Sequence) {
		for _, table := range s.pools[pool].beams {
			for b, page := range table {
				if page != messages.NoPage {
					visit(s, BlockIndex(b), page)
				}
			}
		}
	})
}

// PagesHeld counts the device pages of all pools that sequences hold, each once.
func (a *Arena) PagesHeld() int {
	n := 0
	for p := range a.pools {
		// Forks, beams and reused prefixes share pages: each is counted once.
		seen := map[messages.PageID]struct{}{}
		a.EachPage(p, func(_ *Sequence, _ BlockIndex, page messages.PageID) { seen[page] = struct{}{} })
		n += len(seen)
	}
	return n
}

// Renumber follows pages of a pool that have moved, from old numbers to new ones.
func (a *Arena) Renumber(pool int, to map[messages.PageID]messages.PageID) {
	if len(to) == 0 {
		return
	}
	a.Each(func(s *Sequence) {
		for _, table := range s.pools[pool].beams {
			for i, page := range table {
				if moved, ok := to[page]; ok {
					table[i] = moved
				}
			}
		}
	})
}

// blocks is ⌈n / tokens per block⌉.
func (a *Arena) blocks(n TokenCount) BlockIndex {
	return BlockIndex((int(n) + a.tokensPerBlock - 1) / a.tokensPerBlock)
}

// wholeBlocks is the number of whole blocks in n tokens.
func (a *Arena) wholeBlocks(n TokenCount) BlockIndex {
	return BlockIndex(int(n) / a.tokensPerBlock)
}

// EndOpenedBy ends the sequences that a request has opened, after a failure: the
// request has not been answered, so no host knows them. The tree forgets their symbols when it
// is told which ones are still held (HeldSymbols).
func (a *Arena) EndOpenedBy(stamp uint64) {
	a.Each(func(s *Sequence) {
		if s.opened == stamp {
			s.ReleaseSymbols()
			a.End(s)
		}
	})
}

// FindOnce finds the sequence of one part of a request, which must not have touched
// it: each sequence may be in a request once.
func (a *Arena) FindOnce(id messages.SequenceID, stamp uint64) (*Sequence, error) {
	s, refusal := a.Find(id)
	if refusal != nil {
		return nil, refusal
	}
	if s.Touched == stamp {
		return nil, refusals.New(messages.ErrBadRequest, "sequence %v is twice in one request", id)
	}
	return s, nil
}

// NoteKernel notes the kernel of a step that is refused: it runs all the same, on
// the pages that the sequence holds, whether it is lost or not.
func (a *Arena) NoteKernel(id messages.SequenceID, after messages.Ticket) {
	if s := a.Holder(id); s != nil {
		s.SetAfter(after)
	}
}

// LoseTouchedBy gives up the sequences that a request has touched, after the
// coordinator itself failed over it: no one can say how far the change has come.
func (a *Arena) LoseTouchedBy(stamp uint64) {
	a.Each(func(s *Sequence) {
		if s.Touched == stamp {
			s.MarkLost(LostActor)
		}
	})
}
