package forecast

import (
	"math"
	"slices"
)

// session is what is known of a conversation at the end of one of its prompts.
type session struct {
	time   int64   // milliseconds: when the last prompt's pages were released
	tokens int     // of the last prompt and its answer
	scale  float64 // predicted for the last piece
	pace   float64 // the mean of the session's errors, within clipError
	turn   int     // requests before, mostTurns and more are one
}

// mostTurns is how many turns features tell apart.
const mostTurns = 3

// sessions finds the session of a prompt by the last full block of the prompts before: a prompt
// that runs over it is the next request of that session.
type sessions struct{ *recent[session] }

// newSessions has room for n sessions; the one that has paused for the longest time is
// forgotten for a new one.
func newSessions(n int) sessions { return sessions{newRecent[session](n)} }

// paceRate is how fast a session's pace follows its gaps.
//
// The pace is the mean of a session's errors: how much later than expected its requests come,
// as ln of a factor. Some people and some tools are slow at each step, which no feature of one
// request tells.
const paceRate = 0.3

// continued gives the session that a request continues, as it is at this request, and the
// signatures of its last prompt: the deepest one that ended on its path. It is removed, since
// End adds the new end.
func (s *sessions) continued(prompt []uint64, arrived int64) (e session, n int) {
	for i, signature := range slices.Backward(prompt) {
		found := s.find(signature)
		if found == nil {
			continue
		}
		e = *found
		s.remove(signature)
		logGap := logAge(secondsBetween(e.time, arrived))
		e.pace += paceRate * (clip(logGap-e.scale) - e.pace)
		e.turn = min(e.turn+1, mostTurns)
		return e, i + 1
	}
	return session{}, 0
}

// end notes the end of a prompt. Two sessions can end with the same block, as copies of one
// conversation do; they are then told apart only when their prompts part.
func (s *sessions) end(signature uint64, e session) { *s.use(signature) = e }

// paceFeature is the pace in quarters.
func paceFeature(pace float64) uint8 {
	return uint8(max(0, min(featureValues[featurePace]-1, int(math.Round(pace*4))+8)))
}
