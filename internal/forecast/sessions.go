package forecast

import (
	"math"
	"slices"
)

// session is what is known of a conversation at the end of one of its prompts.
type session struct {
	time   uint32 // stamp: when the last prompt's pages were released
	tokens int32  // of the last prompt and its answer, at most mostTokens
	scale  int16  // predicted for the last piece, within ±mostScale
	pace   int8   // in units of 1/paceUnit
	turn   uint8  // requests before, mostTurns and more are one
}

// The most that a session's end has room for: prompts of 16 million tokens, gaps of e^32 seconds, and the turns that features tell apart.
const (
	mostTokens = 1<<24 - 1
	mostScale  = 1<<13 - 1
	mostTurns  = 3
)

// sessionEnd is a session but for the time, in six bytes: the tokens with the pace as their upper byte, then the scale in the upper
// 14 bits and the turn.
type sessionEnd [3]uint16

// note makes the end that of a session.
func (e *sessionEnd) note(x *session) {
	tokens := uint32(min(x.tokens, mostTokens))
	e[0], e[1] = uint16(tokens), uint16(tokens>>16)|uint16(uint8(x.pace))<<8
	e[2] = uint16(max(-mostScale, min(x.scale, mostScale))<<2) | uint16(min(x.turn, mostTurns))
}

// session is the session.
func (e *sessionEnd) session(time uint32) session {
	return session{time: time, tokens: int32(e[0]) | int32(e[1]&0xff)<<16, scale: int16(e[2]) >> 2, pace: int8(e[1] >> 8), turn: uint8(e[2] & mostTurns)}
}

// sessions finds the session of a prompt by the last full block of the prompts before: a prompt that runs over it is
// the next request of that session.
//
// The entries are in sets of eight, as in the cache of a processor: some bits of a block's hash give its set, and
// 32 others are the tag that tells it from the others there. In a full set the oldest end is forgotten for a new one. A
// block that ends no session is taken for one that does once in 2³²/8 = 500 million look-ups.
//
// A ring of the latest ends with a table over it was rejected: each prompt of a session ends with another block, so many
// places of the ring would be those of sessions that have gone on. With 500 to 1,000 entries it has 5 to 7 points of share
// less at conversation 5,000.
type sessions struct {
	tags   []uint32 // by entry; 0: free
	times  []uint32 // by entry, of sessions
	ends   []sessionEnd
	n      int     // entries that are not free
	filter *filter // that knows the tags
}

// ways is the number of entries of a set.
const ways = 8

// newSessions has n entries, rounded up to whole sets.
func newSessions(n int) sessions {
	n = (n + ways - 1) / ways * ways
	return sessions{tags: make([]uint32, n), times: make([]uint32, n), ends: make([]sessionEnd, n)}
}

// setOf is the first entry of the set that a block belongs to.
func (s *sessions) setOf(hash uint64) int { return ways * partOf(hash, len(s.tags)/ways) }

// find gives the entry of a block, or −1.
func (s *sessions) find(hash uint64) int {
	first, tag := s.setOf(hash), tagOf(hash)
	for k, other := range (*[ways]uint32)(s.tags[first:]) {
		if other == tag {
			return first + k
		}
	}
	return -1
}

// paceRate is how fast a session's pace follows its gaps.
//
// The pace is the mean of a session's errors: how much later than expected its requests come, as ln of a factor. Some
// people and some tools are slow at each step, which no feature of one request tells.
const paceRate = 0.3

// paceUnit gives paces up to clipError the numbers of a byte.
const paceUnit = 127 / clipError

// continued gives the session that a request continues, as it is at this request, and the signatures of its last prompt: the
// deepest one that ended on its path, at one of the blocks that were found. Its entry is removed, since End adds the new end.
func (s *sessions) continued(prompt []uint64, found []int32, arrived uint32) (e session, n int) {
	for _, i := range slices.Backward(found) {
		if int(i) >= len(prompt) {
			continue
		}
		at := s.find(hashOf(prompt[i]))
		if at < 0 {
			continue
		}
		s.tags[at] = 0
		s.n--
		s.filter.stale++
		e = s.ends[at].session(s.times[at])
		logGap := logAge(secondsBetween(e.time, arrived))
		pace := float64(e.pace) / paceUnit
		pace += paceRate * (clip(logGap-float64(e.scale)/fixedUnit) - pace)
		e.pace = int8(math.Round(pace * paceUnit))
		e.turn = min(e.turn+1, mostTurns)
		return e, int(i) + 1
	}
	return session{}, 0
}

// end notes the end of a prompt. Two sessions can end with the same block, as copies of one conversation do; they are
// then told apart only when their prompts part.
func (s *sessions) end(signature uint64, e session) {
	hash := hashOf(signature)
	at := s.choose(hash, e.time)
	switch s.tags[at] {
	case 0:
		s.n++
	case tagOf(hash):
	default:
		s.filter.stale++
	}
	s.tags[at], s.times[at] = tagOf(hash), e.time
	s.ends[at].note(&e)
	s.filter.mark(s.tags[at])
}

// choose gives the entry for a block: its own, if it has one, or else a free one of its set, or else the oldest one.
//
// Which entry is the oldest cannot be guessed, so the loop finds the greatest of eight numbers instead of branching.
func (s *sessions) choose(hash uint64, now uint32) int {
	const free, same = 1 << 40, 1 << 41
	first, tag := s.setOf(hash), tagOf(hash)
	most, times := uint64(0), (*[ways]uint32)(s.times[first:])
	for k, other := range (*[ways]uint32)(s.tags[first:]) {
		rank := uint64(now-times[k])<<3 | uint64(k)
		if other == 0 {
			rank |= free
		}
		if other == tag {
			rank |= same
		}
		most = max(most, rank)
	}
	return first + int(most%ways)
}

// paceFeature is the pace in quarters.
func paceFeature(pace int8) uint8 {
	return uint8(max(0, min(featureValues[featurePace]-1, int(math.Round(float64(pace)/paceUnit*4))+8)))
}
