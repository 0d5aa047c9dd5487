package forecast

import (
	"math/bits"

	"github.com/kvactor/kvactor/internal/protocol"
)

// Features describes one piece at the time of one use. A piece keeps its features and not its
// prediction, so that what is learned later changes its value too.
type Features = protocol.Features

// The features of a piece, each a small integer: indices of Features.Values.
//
// Each has to pay for the observations that it takes from the others. Requests of the session,
// blocks of the prompt and the gap before a use were features once: the mean share of
// docs/policies.md is 0.2 to 0.5 points better without each of them.
const (
	// blocks of the prompt beyond the session's last prompt, as a power of two
	featureNew    = iota
	featureAnswer // eighths of the answer's length in tokens, as a power of two
	// tokens beyond the session's last prompt and its answer, as a power of two; 0: a first prompt
	featureAdded
	featureUses       // uses of the piece, 9 and more are one
	featureFront      // uses of the piece in front, 9 and more are one
	featurePace       // the session's pace in quarters, see session
	featureSuperseded // 1: another prompt has branched off in front of the piece
	featureLast       // 1: the last block of a prompt
	// length of the answer, apart for the first requests of a session, see replyFeature
	featureReply
	featureCount
)

// featureValues is the number of values that each feature may have.
var featureValues = [featureCount]int{16, 16, 26, 10, 10, 17, 2, 2, 32}

// mostValues is the greatest of them.
const mostValues = 32

// logFeature is the power of two of a count, within the values of a feature.
//
// Counts and times are taken by their order of magnitude: a prompt of 40 blocks is followed up
// as one of 50 is, and each value of a feature has to be learned apart.
func logFeature(n, feature int) uint8 {
	return uint8(min(bits.Len(uint(max(0, n))), featureValues[feature]-1))
}

// replyFeature is the length of an answer in steps of one and a half octaves, with a number of
// its own for each of the first three requests of a session. What a long answer says depends on
// these: after the first one it may end a task, later it announces a longer pause. A sum of the
// two features cannot say that.
func replyFeature(turn, tokens int) uint8 {
	return uint8(8*min(turn, mostTurns) + min(bits.Len(uint(max(0, tokens)))*2/3, 7))
}
