package pool

import "github.com/kvactor/kvactor/messages"

// The records of a pool with millions of pages do not fit into the processor's
// caches, and the address of the next page of a list is known only when the record
// before has been read. Each victim would then cost a cache miss, one after the
// other. So a listed page may have a hint: the page hintDistance places behind it in
// the list. When a page is taken, the record that its hint names is prefetched, see
// takeFetching, and the misses overlap:
//
//	list    │ taken │ in the caches or being fetched … │ asked for now │ …
//	          └── hint ───────────────────────────────▶
//
// A hint is kept in the field child, which listed pages do not use otherwise. It
// decides nothing. If pages leave the list or change their level, the hint fetches a
// record that is not needed.

// hintDistance is how far ahead a hint leads. On an EPYC of the fourth generation a page costs 6.6 to 9.2 ns with
// ten million scattered pages so, 8.4 to 11.7 with a distance of 32, and about as much as with 48 with 64. The pages that
// are taken at a time are a few hundred, and the first of them can only be prefetched if the
// operation before has taken pages too, so longer distances lose what they gain.
const hintDistance = 48

// Sizes of a pool from which hints pay.
const (
	// hintedPages is a megabyte of records. In a smaller pool the records are in the caches anyway, unless what the
	// sequences do between two uses of a record takes their places.
	hintedPages = 1 << 15
	// hintedTokens and fewestHinted are for pools of fewer pages with many tokens each. The tokens of a prompt pass through the
	// caches too, 4 bytes each: at 512 tokens a block a pool of 10,000 pages, with 320 KB of records, sees 20 MB of them from one use of a
	// record to the next. Hints save 3 % of a request there (a replay of conversations, on the EPYC of hintDistance).
	hintedTokens = 1 << 19
	fewestHinted = 1 << 12
)

// SetBlockTokens says how many tokens a block has. It decides when records are prefetched, and with the policy forecast how
// many pieces are compared for a choice.
func (p *Pool) SetBlockTokens(tokens int) {
	o := &p.cache.whole
	o.blockTokens = tokens
	o.setHinted()
}

// setHinted tells the order whether its pool is large enough for hints. Pages that were listed before have none.
func (o *order) setHinted() {
	n := len(o.pages)
	o.hinted = n >= hintedPages || n >= fewestHinted && n*o.blockTokens >= hintedTokens
}

// recent holds the pages last appended to the list of a level, the latest last.
// Their hints are set when the next run is appended.
type recent struct {
	pages [hintDistance]int32
	n     int
}

// extendHints sets the hints of the pages of a level that were appended before a run, which
// has been appended to the list from the last page to the first. The pages of the run have
// theirs, where they lead to pages of the run (see run.append).
//
// Each level has recent pages of its own: a hint must lead along the list of its page, and
// prompts of several priorities arrive by turns.
func (o *order) extendHints(l *level, run []messages.PageID) {
	if l.recent == nil {
		l.recent = &recent{}
	}
	r := l.recent
	// The page that was appended hintDistance places after the k-th recent one.
	for k, at := 0, len(run)-1-(hintDistance-r.n); k < r.n && at >= 0; k, at = k+1, at-1 {
		// The recent page may have left the list.
		if g := &o.pages[r.pages[k]]; g.state == listed {
			g.child = int32(run[at])
		}
	}
	r.remember(run)
}

// remember keeps the last pages of a run, and those before if the run is short.
func (r *recent) remember(run []messages.PageID) {
	last := min(len(run), hintDistance)
	kept := min(r.n, hintDistance-last)
	copy(r.pages[:kept], r.pages[r.n-kept:r.n])
	for k := range last {
		r.pages[kept+k] = int32(run[last-1-k])
	}
	r.n = kept + last
}
