package pool

// piecesOf checks the pieces of the policy forecast and returns the number of their
// cached pages:
//
//  1. a piece counts the pages that belong to it, and its list has those that are cached, the deepest first;
//  2. it counts the pieces that hang on it, and it is in the leaves or the inner pieces of its level accordingly,
//     once, as long as it has cached pages;
//  3. a page that caches nothing belongs to no piece;
//  4. in a pool of states checkpoints follow shorter ones, which list them, and their pieces have the blocks that they save.
//
// Forecasts and branches are not checked: they decide which piece is evicted first, and no
// structure depends on them.
func (c *checking) piecesOf() int {
	s := c.pool.cache.pieces
	pages, children := make([]int32, len(s.all)), make([]int32, len(s.all))
	for i := range s.pages {
		n := s.of(int32(i))
		pages[n]++
		// A used page may belong to no piece yet: its request forms pieces when it releases
		// the pages. A cached page must belong to one, or it could never be evicted.
		if g := &c.pool.pages[i]; n != noPiece && !g.stored() || n == noPiece && g.cached() {
			c.say("page %d in state %d with block %d belongs to piece %d", i, g.state, g.block, n)
		}
	}
	for n := int32(1); int(n) < len(s.all); n++ {
		if q := &s.all[n]; q.pages > 0 {
			children[q.parent]++ // of no piece if it never had a parent
		}
	}
	if s.checkpoints != nil {
		c.checkpoints(s)
	}
	c.sets(s)
	cached, unused := 0, 0
	for n := s.free; n != noPiece && unused < len(s.all); n = s.all[n].parent {
		if q := &s.all[n]; q.pages != 0 || q.children != 0 {
			c.say("piece %d with %d pages and %d children is not used", n, q.pages, q.children)
		}
		unused++
	}
	for k := range s.all[1:] {
		n := int32(k + 1)
		q := &s.all[n]
		if q.pages != pages[n] || q.children != children[n] {
			c.say("piece %d has %d pages and %d children, counted %d and %d", n, pages[n], children[n], q.pages, q.children)
		}
		// It has no list and no set. Its number is unused, or pieces hang on it.
		if q.pages == 0 {
			if q.children == 0 {
				unused--
			}
			continue
		}
		cached += c.piece(n, q)
	}
	if unused != 0 {
		c.say("%d numbers of pieces are unused without being so, or the other way round", unused)
	}
	return cached
}

// sets checks that the sets have as many places as there are pieces with cached pages, each of which has its own, see piece.
func (c *checking) sets(s *pieces) {
	if len(s.uses) != len(s.all) || len(s.details) != len(s.all) {
		c.say("%d pieces have %d last uses and %d details", len(s.all), len(s.uses), len(s.details))
	}
	places, cached := 0, 0
	s.orders.each(func(o *order) {
		for _, g := range o.groups {
			if g == nil {
				continue
			}
			for k := range g {
				places += len(g[k].leaves) + len(g[k].inner)
			}
		}
	})
	for n := range s.all[1:] {
		if s.all[n+1].cached() {
			cached++
		}
	}
	if places != cached {
		c.say("%d pieces have cached pages, sets have %d places", cached, places)
	}
}

// piece checks the list of a piece and its place in its level.
//
// All cached pages of a piece have one priority, because the piece has one place in one
// level; used pages of it may have another until they are linked (moveToPriority).
func (c *checking) piece(n int32, q *piece) int {
	count, last := 0, none
	if q.marks.has(withEnd) && (q.children > 0 || !c.pool.cache.pieces.uses[n].features().HasLast()) {
		c.say("piece %d with the last block of a prompt has %d children and the features of others", n, q.children)
	}
	if q.branches < 0 || q.branches > q.children {
		c.say("piece %d with %d children has %d branches", n, q.children, q.branches)
	}
	for i := q.head; i != none && c.follow(i, listed); i = c.pool.pages[i].next {
		g := &c.pool.pages[i]
		if c.pool.cache.pieces.of(i) != n || g.prev != last || last != none && c.pool.pages[last].depth < g.depth {
			c.say("page %d of piece %d is linked behind page %d in piece %d", i, c.pool.cache.pieces.of(i), last, n)
		}
		if o := c.pool.cache.of(i); o.priority(i) != q.priority {
			c.say("page %d of priority %d is in piece %d of priority %d", i, o.priority(i), n, q.priority)
		}
		last = i
		count++
	}
	if q.tail != last {
		c.say("piece %d with %d cached pages ends with page %d, counted %d", n, count, last, q.tail)
	}
	if !q.cached() {
		return count
	}
	if set := *c.pool.cache.pieces.levelOf(q).setOf(q); int(q.spot) >= len(set) || set[q.spot] != n {
		c.say("piece %d with %d children and %d cached pages is not at %d of its set", n, q.children, count, q.spot)
	}
	return count
}

// checkpoints checks which checkpoints follow which.
func (c *checking) checkpoints(s *pieces) {
	listed := 0
	for i := range s.checkpoints.of {
		l := &s.checkpoints.of[i]
		if front := l.front; front != none {
			listed--
			if !s.pages[i].stored() || !s.pages[front].stored() || s.pages[i].depth <= s.pages[front].depth {
				c.say("checkpoint %d of depth %d follows checkpoint %d of depth %d", i, s.pages[i].depth, front, s.pages[front].depth)
			}
		}
		last := none
		for k := l.behind; k != none && listed <= len(s.pages); k = s.checkpoints.of[k].next {
			if b := &s.checkpoints.of[k]; b.front != int32(i) || b.prev != last {
				c.say("checkpoint %d is behind %d and %d, and says %d and %d", k, i, last, b.front, b.prev)
			}
			last = k
			listed++
		}
		if n := s.of(int32(i)); n != noPiece {
			if f := s.uses[n].features(); s.policy.Saves(f, s.checkpoints.saved(int32(i))) != f {
				c.say("checkpoint %d saves %d blocks, its piece %d does not say so", i, s.checkpoints.saved(int32(i)), n)
			}
		}
	}
	if listed != 0 {
		c.say("%d checkpoints are listed behind others, or the other way round", listed)
	}
}
