package coordinator

// loss is the tokens that a prompt computes again although it could have reused them, by reason.
type loss struct {
	states  int // their attention is cached, and their checkpoint was evicted
	unmade  int // their attention is cached, and they never had a checkpoint
	evicted int // their attention was evicted
}

// spacing decides how many tokens lie between two checkpoints of a prompt, for engines that
// rebalance by demand. Dense checkpoints waste little attention where prompts part or eviction
// has cut them, but evict each other. So spacing compares the tokens that were computed again
// because no checkpoint was made with those whose checkpoint was evicted, and halves or doubles
// the interval.
type spacing struct {
	interval        int     // in tokens; 0: only the checkpoints that every prompt has
	least, most     int     // intervals
	unmade, evicted float64 // tokens computed again, for each of the two reasons
}

// spacingOf begins without an interval. Later it is between half and twice the tokens whose
// attention takes as much memory as a checkpoint.
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
	return spacing{least: least, most: 4 * least}
}

// note counts what a prompt computes again.
func (s *spacing) note(l loss) {
	s.unmade += float64(l.unmade)
	s.evicted += float64(l.states)
}

// adjust changes the interval if one of the reasons costs far more than the other, and enough
// of all prompt tokens.
func (s *spacing) adjust(prompt float64) {
	switch {
	case s.unmade > worthMoving*prompt && s.unmade > hysteresis*s.evicted:
		if s.interval == 0 {
			s.interval = s.most
		} else {
			s.interval = max(s.interval/2, s.least)
		}
	case s.evicted > worthMoving*prompt && s.evicted > hysteresis*s.unmade:
		if s.interval *= 2; s.interval > s.most {
			s.interval = 0
		}
	default:
		return
	}
	s.clear()
}

// clear resets the counts.
func (s *spacing) clear() { s.unmade, s.evicted = 0, 0 }

// fade halves the counts, as poolPressure.fade does with its own.
func (s *spacing) fade() { s.unmade, s.evicted = s.unmade/2, s.evicted/2 }
