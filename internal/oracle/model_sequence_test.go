package oracle

import "github.com/kvactor/kvactor/messages"

// sequence is a running sequence.
type sequence struct {
	id            messages.SequenceID
	namespace     messages.Namespace
	session       string
	retention     *messages.Retention
	noStore       bool            // an invalidation named it: it stores nothing more
	retentionDone map[string]bool // blocks that had their retention from it

	prompt   int // tokens
	reused   int // blocks reused whole
	chunk    int // tokens; 0: no chunked prefill
	computed int
	last     use // of the request that touched it last

	wanted []int      // positions of checkpoints
	keys   [][]symbol // by beam: all tokens
	// by pool, beam, block; nil: the window has passed; of states the working page alone
	tables [][][]*page
}

func (s *sequence) length() int { return len(s.keys[0]) }

func (s *sequence) width() int { return len(s.keys) }

// prefilling reports whether the prompt is not computed yet.
func (s *sequence) prefilling() bool { return s.computed < s.prompt }

// coveredByReserve reports whether the sequence's reserve stands for what it has in pool
// p at a block index: the pages of a chunked prefill's own, not those it
// reused whole.
func (s *sequence) coveredByReserve(p *pool, index int) bool {
	return s.chunk > 0 && p.limited() && s.prefilling() && index >= s.reused
}

// setPage puts a page into the tables of all beams.
func (s *sequence) setPage(p *pool, index int, pg *page) {
	for _, table := range s.tables[p.id] {
		table[index] = pg
	}
}

// tablesOf numbers the pages of a sequence.
func tablesOf(s *sequence) messages.Tables {
	var all messages.Tables
	for _, beams := range s.tables {
		var ofPool [][]messages.PageID
		for _, table := range beams {
			numbers := []messages.PageID{}
			for _, pg := range table {
				numbers = append(numbers, numberOf(pg))
			}
			ofPool = append(ofPool, numbers)
		}
		all = append(all, ofPool)
	}
	return all
}

func numberOf(pg *page) messages.PageID {
	if pg == nil {
		return messages.NoPage
	}
	return messages.PageID(pg.number)
}
