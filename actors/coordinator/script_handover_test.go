package coordinator_test

import (
	"fmt"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// handOver serves the parts of a hand-over. An import takes pages for a sequence of which
// all tokens are computed elsewhere; in this world the host writes and commits them at once.
//
//	import a=0..13 [items]     describe a
func (s *script) handOver(d *datadriven.TestData) {
	arg := d.CmdArgs[0]
	if d.Cmd == "describe" {
		m := &protocol.DescribeSequence{Sequence: s.names[arg.Key]}
		if s.Do(m) {
			fmt.Fprintf(&s.out, "%d tokens, prompt %d, %d computed, covers %v, %v\n", len(m.State.Tokens),
				m.State.Prompt, m.State.Computed, m.State.Covers != nil, m.Err)
		}
		return
	}
	tokens := tokensOf(arg.Vals[0])
	m := &protocol.BeginImport{Prompt: messages.AdmitRequest{Tokens: tokens}, Length: len(tokens),
		Computed: len(tokens)}
	if d.HasArg("items") {
		m.Prompt.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 1, Length: 2}}
	}
	if !s.Do(m) {
		return
	}
	missing := 0
	for _, is := range m.Missing {
		if is {
			missing++
		}
	}
	fmt.Fprintf(&s.out, "%d of %d pages are missing, %v\n", missing, len(m.Missing), m.Err)
	if m.Err == nil {
		s.names[arg.Key] = m.Sequence
		l := s.started(&m.Prompt, &messages.Admitted{Sequence: m.Sequence})
		// In one pool the shared blocks are the first ones. The rest comes now, and is
		// committed.
		before, after := s.Before, s.After
		s.Before, s.After = nil, nil
		s.write(l, (len(m.Missing)-missing)*tpb, len(tokens))
		s.world.Do(
			&messages.Commit{Steps: []messages.CommitStep{{Sequence: m.Sequence, Computed: len(tokens)}}})
		l.computed = len(tokens)
		s.Before, s.After = before, after
	}
}
