package forecast

import (
	"math"
	"slices"
)

// session is what is known of a conversation at the end of one of its prompts.
type session struct {
	time   int64 // milliseconds: when the last prompt's pages were released
	pace   float32
	scale  int16 // predicted for the last piece
	turn   uint8 // requests before
	tokens int32 // of the last prompt and its answer
}

// sessions finds the session of a prompt by the last full block of the prompts before: a prompt that runs over it is
// the next request of that session. The entries are a ring: the oldest end is forgotten for a new one.
type sessions struct {
	index table
	ring  []sessionEnd
	next  int
}

type sessionEnd struct {
	signature uint64
	session
}

func newSessions(n int) sessions {
	return sessions{index: newTable(n), ring: make([]sessionEnd, n)}
}

// paceRate is how fast a session's pace follows its gaps.
//
// The pace is the mean of a session's errors: how much later than expected its requests come, as ln of a factor. Some
// people and some tools are slow at each step, which no feature of one request tells.
const paceRate = 0.3

// continued gives the session that a request continues, as it is at this request, and the signatures of its last prompt: the deepest one that ended on its
// path, at one of the blocks that were found. Its entry is removed, since End adds the new end.
func (s *sessions) continued(prompt []uint64, found []int32, arrived int64) (e session, n int) {
	for _, i := range slices.Backward(found) {
		if int(i) >= len(prompt) {
			continue
		}
		at := s.index.find(prompt[i])
		if at < 0 {
			continue
		}
		e = s.ring[at].session
		s.index.remove(prompt[i])
		s.ring[at].signature = 0
		logGap := math.Log(float64(max(0, arrived-e.time))/1000 + 1)
		e.pace += paceRate * float32(clip(logGap-float64(e.scale)/fixedUnit)-float64(e.pace))
		e.turn = min(e.turn, 250) + 1
		return e, int(i) + 1
	}
	return session{}, 0
}

// end notes the end of a prompt. Two sessions can end with the same block, as copies of one conversation do; they are
// then told apart only when their prompts part.
func (s *sessions) end(signature uint64, e session) {
	if at := s.index.find(signature); at >= 0 {
		s.ring[at].session = e
		return
	}
	slot := &s.ring[s.next]
	if slot.signature != 0 {
		s.index.remove(slot.signature)
	}
	*slot = sessionEnd{signature, e}
	s.index.put(signature, int32(s.next))
	s.next = (s.next + 1) % len(s.ring)
}

// paceFeature is the pace in quarters.
func paceFeature(pace float32) uint8 {
	return uint8(max(0, min(featureValues[featurePace]-1, int(math.Round(float64(pace)*4))+8)))
}
