package runner

import (
	"context"
	"io"
	"slices"

	"github.com/kvactor/kvactor"
)

// Send hands a sequence over to the runner at the other end of a connection. It goes on
// here, too, until it is released. A state that is ahead of what is committed is refused.
func (r *Runner) Send(
	ctx context.Context, s *Sequence, connection io.ReadWriter,
) (*kvactor.Exported, error) {
	if err := s.checkState("hand-over", s.cached.Computed()); err != nil {
		return nil, err
	}
	return r.Engine.Send(ctx, s.cached, connection)
}

// Receive takes a sequence from Send. Tokens that the source has sampled and not computed
// are computed by the next step.
func (r *Runner) Receive(
	ctx context.Context, connection io.ReadWriter,
) (*Sequence, *kvactor.Imported, error) {
	in, err := r.Engine.Receive(ctx, connection)
	if err != nil {
		return nil, nil, err
	}
	return r.received(in), in, nil
}

// received is the sequence of a hand-over. Keys and values of the encoder's input have come
// in the pages of the cross pool: none of it is to be computed.
func (r *Runner) received(in *kvactor.Imported) *Sequence {
	computed := in.Sequence.Computed()
	return &Sequence{
		Tokens: slices.Clone(in.Tokens), Prompt: in.Sequence.Prompt(), Reused: computed,
		cached: in.Sequence, computed: computed,
		encoder: in.Encoder, encode: len(in.Encoder), recurrent: r.Model.Recurrent(), state: computed,
	}
}

// Sample appends the greedy choice after the last step, which the next step computes.
func (r *Runner) Sample(ctx context.Context, s *Sequence) error {
	return r.add(ctx, s, s.Next())
}

// Step computes what was sampled, and samples the next token.
func (r *Runner) Step(ctx context.Context, s *Sequence) error {
	if err := r.one(ctx, s); err != nil {
		return err
	}
	return r.Sample(ctx, s)
}
