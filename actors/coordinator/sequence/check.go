package sequence

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/messages"
)

// Check verifies every relation between the parts of every sequence and joins what
// is wrong.
func (a *Arena) Check() error {
	var problems []error
	fail := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	free := map[uint32]bool{}
	for _, slot := range a.free {
		// A slot is free or taken, and free once.
		if free[slot] || a.slots[slot].running {
			fail("sequences: slot %d is free twice, or taken", slot)
		}
		free[slot] = true
	}
	reserved := make([]PageCount, len(a.pools))
	sharers := map[*int]int{}
	for slot, s := range a.slots {
		// A handle names the slot that it is in.
		if uint32(s.id) != uint32(slot) || s.arena != a || s.running == free[uint32(slot)] {
			fail("sequences: slot %d holds %v, running %v, free %v", slot, s.id, s.running,
				free[uint32(slot)])
		}
		for p := range s.pools {
			// Reserves of ended sequences are 0, those of lost ones count until they are ended.
			reserved[p] += s.pools[p].reserve
		}
		if s.running && s.symbols != nil {
			sharers[s.symbols]++
		}
		// Between Open and Admit, and after a loss, tables and counts are in no relation.
		if s.running && s.admitted && s.loss == NotLost {
			problems = append(problems, check(s)...)
		}
	}
	for p, n := range reserved {
		if n != a.reserved[p] {
			fail("pool %s: reserves add up to %d, counted %d", a.pools[p].Name, n, a.reserved[p])
		}
	}
	for counted, n := range sharers {
		if n != *counted {
			fail("sequences: %d share the symbols of a prompt, counted %d", n, *counted)
		}
	}
	return errors.Join(problems...)
}

// check verifies a sequence that is admitted and not lost.
func check(s *Sequence) (problems []error) {
	a, length := s.arena, s.Length()
	rule := func(holds bool, format string, args ...any) {
		if !holds {
			problems = append(problems, fmt.Errorf("sequence %v: %s", s.id, fmt.Sprintf(format, args...)))
		}
	}
	// Lengths first: what follows is computed from them.
	rule(s.computed <= length, "%d of %d tokens are computed", s.computed, length)
	rule(s.Prompt <= length, "%d tokens, the prompt has %d", length, s.Prompt)
	for b := range s.tokens {
		rule(len(s.tokens[b]) == int(length), "beam %d has %d tokens, the first %d", b,
			len(s.tokens[b]), length)
	}
	// Counts of leading blocks lie within what they count.
	rule(s.sharedBlocks <= s.Blocks(), "%d blocks are shared of %d", s.sharedBlocks, s.Blocks())
	rule(s.retainedBlocks <= a.wholeBlocks(s.computed), "%d blocks are retained, %d tokens computed",
		s.retainedBlocks, s.computed)
	rule(s.reusedBlocks <= a.blocks(s.Prompt), "%d blocks were reused of a prompt of %d tokens",
		s.reusedBlocks, s.Prompt)
	// A prompt is in chunks as long as it is not computed.
	rule(s.chunk == 0 || s.computed < s.Prompt, "a chunk ends at %d of %d tokens, %d are computed",
		s.ChunkEnd(), s.Prompt, s.computed)
	rule(s.pendingBeams == 0 || s.pendingBeams > 1 && s.chunk > 0 && s.Width() == 1,
		"%d beams are pending beside %d", s.pendingBeams, s.Width())
	// Prefixes end at block boundaries, and each says something that no other says.
	for i, known := range s.retained {
		rule(len(known)%a.tokensPerBlock == 0, "a retained prefix of %d tokens ends inside a block",
			len(known))
		for j, other := range s.retained {
			rule(i == j || sharedTokens(known, other) < len(known), "retained prefix %d begins prefix %d",
				i, j)
		}
	}
	for p := range s.arena.tokenPools {
		checkTables(s, p, rule)
	}
	for p := s.arena.tokenPools; p < s.arena.selfPools; p++ {
		table := s.pools[p].beams[0]
		rule(len(s.pools[p].beams) == 1 && len(table) > 0 && !slices.Contains(table, messages.NoPage) &&
			len(table) == len(s.pools[a.tokenPools].beams[0]),
			"pool %s has tables %v, of a working page and drafts", a.pools[p].Name, s.pools[p].beams)
	}
	checkInput(s, rule)
	return problems
}

// checkInput verifies the input of an encoder and its tables.
func checkInput(s *Sequence, rule func(bool, string, ...any)) {
	in, tpb := &s.Input, s.arena.tokensPerBlock
	// Padding fills the last block and no other.
	rule(len(in.Tokens)%tpb == 0 && int(in.Length) <= len(in.Tokens) &&
		len(in.Tokens)-int(in.Length) < tpb,
		"an input of %d tokens is padded to %d", in.Length, len(in.Tokens))
	rule(int(in.Computed) <= len(in.Tokens), "%d of %d tokens of the input are computed", in.Computed,
		len(in.Tokens))
	// No layer of the decoder computes anything without the input.
	rule(s.computed < s.Prompt || !s.Input.Pending(), "the prompt is computed, the input is not")
	for p := s.arena.selfPools; p < len(s.pools); p++ {
		name := s.arena.pools[p].Name
		rule(len(s.pools[p].beams) == 1, "%d tables in pool %s", len(s.pools[p].beams), name)
		table := s.pools[p].beams[0]
		rule(len(table) == len(in.Tokens)/tpb,
			"the table in pool %s has %d entries for an input of %d tokens", name, len(table), in.Length)
		for b, page := range table {
			rule(page != messages.NoPage, "block %d of the input has no page in pool %s", b, name)
		}
	}
}

// checkTables verifies the tables of one pool: their number, their length, and that
// exactly what has left the window has no page.
func checkTables(s *Sequence, p int, rule func(bool, string, ...any)) {
	a, held := s.arena, &s.pools[p]
	shape := &a.pools[p]
	blocks := a.blocks(s.Length())
	// The table ends with the chunk.
	if s.Covered(p) {
		blocks = a.blocks(s.ChunkEnd())
	}
	rule(len(held.beams) == s.Width(), "%d tables in pool %s for %d beams", len(held.beams),
		shape.Name, s.Width())
	// A reserve stands only for what is still to come.
	rule(held.reserve == 0 || s.Covered(p), "a reserve of %d pages in pool %s", held.reserve,
		shape.Name)
	rule(held.windowStart == 0 || !shape.Full() && int(held.windowStart) <= len(held.beams[0]),
		"the window of pool %s begins at block %d", shape.Name, held.windowStart)
	for beam, table := range held.beams {
		rule(len(table) == int(blocks), "table of beam %d in pool %s has %d entries for %d blocks", beam,
			shape.Name, len(table), blocks)
		seen := map[messages.PageID]bool{}
		for b, page := range table {
			// Exactly what has left the window has no page.
			left := b >= shape.SinkBlocks() && b < int(held.windowStart)
			rule((page == messages.NoPage) == left,
				"block %d of beam %d in pool %s is on page %d, the window begins at block %d", b, beam,
				shape.Name, page, held.windowStart)
			rule(page == messages.NoPage || !seen[page],
				"page %d of pool %s is twice in the table of beam %d", page, shape.Name, beam)
			seen[page] = true
		}
	}
}

// String draws every sequence: its counts, then its tables.
func (a *Arena) String() string {
	var w strings.Builder
	a.Each(func(s *Sequence) { w.WriteString(s.String()) })
	for p, n := range a.reserved {
		if n > 0 {
			fmt.Fprintf(&w, "reserved %s: %d\n", a.pools[p].Name, n)
		}
	}
	if w.Len() == 0 {
		return "no sequences\n"
	}
	return w.String()
}

// String draws one sequence. Counts that are 0 are left out.
func (s *Sequence) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "sequence %v: %d of %d tokens computed, prompt %d", s.id, s.computed, s.Length(),
		s.Prompt)
	for _, n := range []struct {
		name  string
		value int
	}{
		{"shared", int(s.sharedBlocks)}, {"retained", int(s.retainedBlocks)},
		{"reused", int(s.reusedBlocks)},
		{"chunk end", drawnChunkEnd(s)}, {"pending beams", s.pendingBeams},
	} {
		if n.value > 0 {
			fmt.Fprintf(&w, ", %s %d", n.name, n.value)
		}
	}
	for _, is := range []struct {
		what string
		true bool
	}{{"being admitted", !s.admitted}, {"stores nothing", s.NoStore},
		{"lost" + s.loss.String(), s.IsLost()}} {
		if is.true {
			w.WriteString(", " + is.what)
		}
	}
	if s.Input.Given() {
		fmt.Fprintf(&w, ", input %d of %d tokens", min(s.Input.Computed, s.Input.Length), s.Input.Length)
	}
	w.WriteByte('\n')
	for p := range s.pools {
		for _, table := range s.pools[p].beams {
			fmt.Fprintf(&w, "  %s:", s.arena.pools[p].Name)
			for _, page := range table {
				if page == messages.NoPage {
					w.WriteString(" -")
				} else {
					fmt.Fprintf(&w, " %d", page)
				}
			}
			if n := s.pools[p].reserve; n > 0 {
				fmt.Fprintf(&w, ", reserve %d", n)
			}
			w.WriteByte('\n')
		}
	}
	return w.String()
}

// drawnChunkEnd is the end of the chunk, 0 without chunks.
func drawnChunkEnd(s *Sequence) int {
	if s.chunk == 0 {
		return 0
	}
	return int(s.ChunkEnd())
}
