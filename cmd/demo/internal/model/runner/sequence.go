package runner

import (
	"slices"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Sequence is one running sequence. Its exported fields are for reading.
type Sequence struct {
	Tokens    []messages.Token // prompt, sampled tokens, drafts; of beam 0
	Prompt    int
	Reused    int // tokens whose K and V were cached when it came
	Onboarded int // pages that were brought from host memory for it
	// Logits are those of the last step: of all new tokens if AllLogits is set,
	// else of the last one, and none while the prompt is not computed. With beams
	// there is one row for each.
	Logits    [][]float32
	AllLogits bool

	cached   *kvactor.Sequence
	computed int
	encoder  []messages.Token
	private  string // salt of its own; "": none
	encode   int    // first encoder token whose K and V are to be written
	last     gpu.Ticket
	beams    [][]messages.Token // generated tokens by beam; nil without beams

	recurrent  bool
	state      int // most tokens whose state a page has, once queued kernels have run
	statePool  int // the first pool of states
	statesFrom int // tokens that were committed when the pages of states were asked for
}

// Computed is the count of tokens whose K and V are in the pages.
func (s *Sequence) Computed() int { return s.computed }

// Beams are the generated tokens of each beam.
func (s *Sequence) Beams() [][]messages.Token { return s.beams }

// Tables are the page tables, as the engine has them.
func (s *Sequence) Tables() messages.Tables { return s.cached.Tables() }

// Checkpoints are the positions of the prompt at which a step ends, because the
// engine keeps the state there.
func (s *Sequence) Checkpoints() []int { return s.cached.Admitted().Checkpoints }

// admitted is the sequence of an admission.
func (r *Runner) admitted(q *Request, cached *kvactor.Sequence) *Sequence {
	in := cached.Admitted()
	s := &Sequence{
		Tokens: append([]messages.Token(nil), q.Tokens...), Prompt: len(q.Tokens),
		Reused: in.ReusedTokens,
		cached: cached, computed: in.ReusedTokens, encoder: q.Encoder, encode: len(q.Encoder),
		recurrent: r.Model.Recurrent(), state: in.ReusedTokens,
		statePool: slices.IndexFunc(r.pools,
			func(p windows.Pool) bool { return p.Kind == windows.KindState }),
	}
	for _, p := range in.Reuse {
		s.Onboarded += p.Onboarded
	}
	if q.Private {
		s.private = q.Salt
	}
	if in.Cross != nil {
		s.encode = in.Cross.ReusedTokens
	}
	if q.Beams > 1 {
		s.beams = make([][]messages.Token, q.Beams)
	}
	return s
}

// follow makes beams of their parents.
func (s *Sequence) follow(steps []messages.BeamStep) {
	beams := make([][]messages.Token, len(steps))
	for i, b := range steps {
		parent := s.beams[b.Parent]
		beams[i] = append(append([]messages.Token(nil), parent...), b.Token)
	}
	s.beams = beams
	s.Tokens = append(s.Tokens[:s.Prompt], beams[0]...)
}

// generating tells whether the prompt is computed.
func (s *Sequence) generating() bool { return s.computed >= s.Prompt }

// until is where the next step of a sequence ends: at the end of a chunk, which
// is the end of a block, at a checkpoint, at the end of the prompt, or at the last
// token.
func (s *Sequence) until(chunk, tokensPerBlock int) int {
	if s.generating() {
		return len(s.Tokens)
	}
	end := s.Prompt
	if chunk > 0 {
		end = min((s.computed+chunk)/tokensPerBlock*tokensPerBlock, end)
	}
	for _, at := range s.Checkpoints() {
		if at > s.computed {
			return min(at, end)
		}
	}
	return end
}
