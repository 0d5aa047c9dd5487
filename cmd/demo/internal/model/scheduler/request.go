package scheduler

import (
	"context"
	"math/rand/v2"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// Request is a prompt and what is to be generated behind it.
type Request struct {
	Tokens    []messages.Token
	Salt      string              // prompts reuse only what requests with the same salt left
	Retention *messages.Retention // of the prompt and the answers
	New       int                 // tokens of each choice, at most
	Choices   int                 // 0: 1
	Sampling  Sampling
	Stops     map[messages.Token]bool // tokens that end a choice, its last
	MinNew    int                     // tokens of each choice before one of Stops may come
	// PromptLogits asks for the logits of the prompt. None of it is reused then, since logits
	// are not cached, and nothing of it is kept.
	PromptLogits bool
	Sink         Sink
}

// Sink takes what is generated for one request. The scheduler calls it on its own
// goroutine, one call at a time: it must not block. After Ended of all choices no
// call follows.
type Sink interface {
	// Prompt gives logits of the prompt, if they were asked for: the first are behind token
	// at. After a preemption they come again.
	Prompt(at int, logits [][]float32)
	// Started is called once, when the prompt is computed.
	Started(Reuse)
	// Token gives the next token of a choice. False ends the choice: it is complete.
	Token(choice int, t Sampled) bool
	// Ended says that a choice is complete, and with Failed why it is not.
	Ended(choice int, reason Reason, err error)
}

// Sampled is a token with the logits that it was sampled from, before bias and penalties.
// They belong to the sink.
type Sampled struct {
	Token  messages.Token
	Logits []float32
	Stop   bool // it is one of Stops
}

// Reuse says what a prompt found in the cache.
type Reuse struct {
	Tokens    int // whose keys and values were cached
	Onboarded int // pages that came from host memory
}

// Reason says why a choice ended.
type Reason uint8

// The ends of a choice.
const (
	Stopped   Reason = iota // by one of Stops, or by the sink
	Length                  // New tokens, or the longest sequence, are reached
	Cancelled               // the request's context ended
	Failed                  // by an error
)

// job is one request in the scheduler.
type job struct {
	Request
	ctx      context.Context
	started  bool   // Started was called
	admitted *Reuse // at the first admission, as others are of its own work; nil: not yet
	// Until forked is true choice 0 is the only answer and stands for all: the others
	// come into being when its prompt is computed.
	forked   bool
	open     int // choices that have not ended; −1 when that was noticed
	failures int // in a row: steps that failed and were tried again
}

// answer is one choice of a job: a sequence while it runs.
//
//	waiting ──admit──▶ prefilling ──prompt computed──▶ decoding ──end──▶ ended
//	   ▲                   │                              │
//	   └──── withdraw: preempted, or the engine lost it ──┘
//
// A choice that was withdrawn keeps its tokens and its random source, so it goes on
// where it was: its prompt is then tokens as a whole.
type answer struct {
	*job
	choice int
	tokens []messages.Token // prompt and generated ones; the last one may be in no page yet
	rng    *rand.Rand
	ended  bool

	sequence *runner.Sequence // nil: it waits

	// Of the step that runs. A decode step appends one token that was sampled before and
	// drafts behind it; a chunk of a prompt appends none. The first of those appended is
	// always right, so accepted is 1 to appended, and computed + accepted tokens are
	// committed. The others are rewound.
	appended int
	computed int // tokens of the sequence before the step
	accepted int
}

// newAnswer starts a choice of a job.
func newAnswer(j *job, choice int) *answer {
	tokens := make([]messages.Token, len(j.Tokens), len(j.Tokens)+j.New)
	copy(tokens, j.Tokens)
	return &answer{job: j, choice: choice, tokens: tokens, rng: j.Sampling.source(choice)}
}

// generated is the number of tokens generated so far.
func (a *answer) generated() int { return len(a.tokens) - len(a.Tokens) }

// prefilling tells whether the prompt is not computed. What a preempted sequence had
// generated is a part of its prompt.
func (a *answer) prefilling() bool { return a.sequence.Computed() < a.sequence.Prompt }

// end ends a choice, once.
func (a *answer) end(reason Reason, err error) {
	if a.ended {
		return
	}
	a.ended = true
	a.open--
	a.Sink.Ended(a.choice, reason, err)
}
