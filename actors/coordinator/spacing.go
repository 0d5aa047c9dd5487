package coordinator

// loss is what a prompt computes again of what the cache had a short while ago, in tokens. What
// was lost for several reasons counts once.
type loss struct {
	states  int // attention was there, and the state had been made
	unmade  int // attention was there, and no state had ever been made
	evicted int // the rest
}

// spacing decides how far apart the checkpoints on the way of a prompt are, for engines that
// rebalance by demand. Many checkpoints lose little attention where prompts part or eviction has
// cut them, and displace each other; few keep longer. So it compares what is lost for want of
// checkpoints with what is lost since they were evicted, and halves or doubles the distance.
type spacing struct {
	tokens      int // between two checkpoints; 0: none are made on the way
	first, last int // distances: the widest and the narrowest
	// unmade and evicted are what was lost for want of a checkpoint, and of checkpoints that
	// were evicted; they fade as what was measured for pools does.
	unmade, evicted float64
}

// spacingOf begins without checkpoints on the way. The distance is between half and twice the
// tokens whose attention takes as much memory as a checkpoint.
func spacingOf(c *Config) spacing {
	var attention, state int64
	for p := range c.selfPools() {
		if p < c.tokenPools() {
			attention += c.Pools[p].PageBytes()
		} else {
			state += c.Pools[p].PageBytes()
		}
	}
	if attention == 0 || state == 0 {
		return spacing{}
	}
	blocks := float64(state) / float64(attention)
	least := max(1, int(blocks/2)) * c.TokensPerBlock
	return spacing{first: 4 * least, last: least}
}

// note counts what a prompt has lost.
func (s *spacing) note(l loss) {
	s.unmade += float64(l.unmade)
	s.evicted += float64(l.states)
}

// adjust changes the distance if one loss is plainly more than the other, and worth it.
func (s *spacing) adjust(prompt float64) {
	switch {
	case s.unmade > worthMoving*prompt && s.unmade > hysteresis*s.evicted:
		if s.tokens == 0 {
			s.tokens = s.first
		} else {
			s.tokens = max(s.tokens/2, s.last)
		}
	case s.evicted > worthMoving*prompt && s.evicted > hysteresis*s.unmade:
		if s.tokens *= 2; s.tokens > s.first {
			s.tokens = 0
		}
	default:
		return
	}
	s.clear()
}

// clear begins to count anew, and fade makes what was counted count half.
func (s *spacing) clear() { s.unmade, s.evicted = 0, 0 }
func (s *spacing) fade()  { s.unmade, s.evicted = s.unmade/2, s.evicted/2 }
