package sim

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// application is one host: it has some sequences, a compute stream, and at most
// one call on its way.
type application struct {
	world     *world
	number    int
	stream    gpu.Stream
	writer    *host.Writer
	busy      bool
	sequences []*sequence
	gone      []messages.ReleaseStep // lost ones, to be released still
}

// sequence is what a host remembers of a running sequence.
type sequence struct {
	id       messages.SequenceID
	text     prompt // of beam 0
	prompt   int    // tokens
	chunk    int    // tokens; 0: none
	computed int
	written  int // tokens that a kernel was launched for; computed ≤ written unless rewound
	beams    [][]host.Chain
	input    []host.Chain // of the encoder's tokens
	encoded  int          // of them, how many have their KV in the cross pages
	tables   messages.Tables
	known    bool // tables are those of the engine
	// shared: pages of tokens that are not computed are a fork's too, so they
	// may be written only after the next append.
	shared bool
	// checkpoints are the positions of the prompt at which a commit makes a checkpoint.
	checkpoints []int

	ready []messages.Ticket
	last  messages.Ticket // of the latest kernel that touched the pages
}

func (s *sequence) length() int { return len(s.beams[0]) }

func newApplication(w *world, number int) (*application, error) {
	stream, err := w.device.NewStream(fmt.Sprintf("host %d", number))
	if err != nil {
		return nil, err
	}
	w.streams = append(w.streams, stream)
	return &application{world: w, number: number, stream: stream,
		writer: host.NewWriter(host.WriterConfig{
			Launcher: w.device, Stream: stream, Pools: w.engine.DevicePools(), Layouts: w.layouts,
			NanosPerToken: 1000,
			Ranks:         w.ranks,
		})}, nil
}

// act does one thing, if the host has nothing on its way.
func (a *application) act() {
	w := a.world
	if a.busy || !w.room() {
		return
	}
	if len(a.gone) > 0 {
		a.releaseLost()
		return
	}
	if len(a.sequences) == 0 || len(a.sequences) < w.perHost && w.rng.IntN(4) == 0 {
		a.admit()
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 4:
		a.release()
	case n < 8:
		a.fork()
	case n < 13:
		a.rewind()
	case n < 60 && a.compute():
	case n < 95:
		a.append()
	default:
		a.release()
	}
}

// some picks some of the sequences that a rule allows, each once.
func (a *application) some(allowed func(*sequence) bool) []*sequence {
	var list []*sequence
	for _, s := range a.sequences {
		if allowed(s) && a.world.rng.IntN(3) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// one picks one sequence that a rule allows; nil if there is none.
func (a *application) one(allowed func(*sequence) bool) *sequence {
	var list []*sequence
	for _, s := range a.sequences {
		if allowed(s) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[a.world.rng.IntN(len(list))]
}

func (a *application) admit() {
	w := a.world
	m := &messages.Admit{}
	var prompts []prompt
	for range 1 + w.rng.IntN(min(3, w.perHost)) {
		p := w.drawPrompt()
		r := messages.AdmitRequest{
			Namespace: p.Namespace, Tokens: p.Tokens, Multimodal: p.Multimodal,
			Retention: w.drawRetention(len(p.Tokens)),
			Encoder:   p.Encoder, EncoderItems: p.EncoderItems,
		}
		if w.encodes {
			r.EncoderRetention = w.drawRetention(len(p.Encoder))
		}
		kind := w.rng.IntN(16)
		if kind < 2 && !w.recurrent {
			r.BeamWidth = 2 + w.rng.IntN(2)
		}
		if kind > 0 && kind < 6 {
			r.ChunkTokens = w.cache.TokensPerBlock * (1 + w.rng.IntN(3))
		}
		if w.rng.IntN(4) == 0 {
			r.Session = []string{"s", "t"}[w.rng.IntN(2)]
		}
		m.Requests, prompts = append(m.Requests, r), append(prompts, p)
	}
	if w.rng.IntN(12) == 0 {
		w.cancel("admit", m)
		return
	}
	r := &request{kind: "admit", record: m, by: a, detail: describeAdmit(m.Requests)}
	r.then = func(err error) {
		for i := range m.Results {
			if err == nil {
				a.admitted(r, &m.Requests[i], &m.Results[i], prompts[i])
			}
		}
	}
	w.submit(r)
}

func describeAdmit(list []messages.AdmitRequest) string {
	s := ""
	for i := range list {
		r := &list[i]
		s += fmt.Sprintf(" {%v %v", r.Namespace, r.Tokens)
		if len(r.Multimodal) > 0 {
			s += fmt.Sprintf(" item %d+%d", r.Multimodal[0].Start, r.Multimodal[0].Length)
		}
		if len(r.Encoder) > 0 {
			s += fmt.Sprintf(" encoder %v %v", r.Encoder, r.EncoderItems)
		}
		if r.Retention != nil {
			s += fmt.Sprintf(" keep %v %v", r.Retention.Ranges, r.Retention.Decode)
		}
		s += fmt.Sprintf(" session %q beams %d chunk %d}", r.Session, r.BeamWidth, r.ChunkTokens)
	}
	return s
}

// admitted takes a sequence over.
func (a *application) admitted(
	r *request, q *messages.AdmitRequest, got *messages.Admitted, p prompt,
) {
	w := a.world
	if (w.encodes || w.recurrent) && code(got.Err) == messages.ErrInternal && !w.calm {
		w.counts.add("refusals, internal", 1)
		return // a transfer of the cross side failed, or that of zeros into a working page
	}
	w.expect(r, got.Err, messages.ErrOutOfPages)
	if got.Err != nil {
		return
	}
	w.tellf("  sequence %v reuses %d of %d, %v, ready %v, tables %v", got.Sequence, got.ReusedTokens,
		len(q.Tokens), got.Reuse, got.Ready, got.Tables)
	if got.ReusedTokens >= len(q.Tokens) || got.ReusedTokens < 0 {
		w.failf("%s: %d tokens reused of a prompt of %d", r, got.ReusedTokens, len(q.Tokens))
	}
	s := &sequence{
		id: got.Sequence, text: p, prompt: len(q.Tokens), chunk: q.ChunkTokens,
		computed: got.ReusedTokens, written: got.ReusedTokens,
		tables: cloneTables(got.Tables), known: true, ready: slices.Clone(got.Ready),
		checkpoints: slices.Clone(got.Checkpoints),
	}
	for range max(1, q.BeamWidth) {
		s.beams = append(s.beams, p.chains())
	}
	s.text.Tokens = slices.Clone(p.Tokens)
	if w.encodes {
		a.encoding(r, s, got)
	}
	if n := len(s.tables[0]); n != len(s.beams) {
		w.failf("%s: %d tables for %d beams", r, n, len(s.beams))
	}
	a.sequences = append(a.sequences, s)
	w.counts.add("tokens reused", got.ReusedTokens)
	if w.recurrent {
		w.counts.add("tokens reused behind a checkpoint", got.ReusedTokens)
	}
}

// encoding looks at the cross side of an admission.
func (a *application) encoding(r *request, s *sequence, got *messages.Admitted) {
	w := a.world
	_, s.input = s.text.input()
	cross, last := got.Cross, w.decoder()
	if cross == nil || len(got.Tables) != last+1 {
		w.failf("%s: %+v has no cross side", r, got)
		return
	}
	w.tellf("  cross %+v", *cross)
	tpb := w.cache.TokensPerBlock
	if n := len(s.input); cross.ReusedTokens != 0 && cross.ReusedTokens != n ||
		len(cross.Table) != (n+tpb-1)/tpb {
		w.failf("%s: %+v of an input of %d tokens", r, *cross, n)
	}
	if t := got.Tables[last]; len(t) != 1 || !slices.Equal(t[0], cross.Table) {
		w.failf("%s: cross tables %v, %v", r, t, cross.Table)
	}
	s.encoded = cross.ReusedTokens
	s.ready = append(s.ready, cross.Ready...)
	w.counts.add("encoder tokens reused", s.encoded)
}

func cloneTables(t messages.Tables) messages.Tables {
	own := make(messages.Tables, len(t))
	for p := range t {
		for _, table := range t[p] {
			own[p] = append(own[p], slices.Clone(table))
		}
	}
	return own
}

// reach is how far a kernel may compute now.
func (a *application) reach(s *sequence) int {
	tpb, rng := a.world.cache.TokensPerBlock, a.world.rng
	if s.computed >= s.prompt {
		return s.computed + 1 + rng.IntN(s.length()-s.computed)
	}
	end := s.prompt
	if s.chunk > 0 {
		end = min(end, (s.computed+s.chunk)/tpb*tpb)
	}
	for _, position := range s.checkpoints {
		if position > s.computed && position < end && rng.IntN(3) > 0 {
			return position
		}
	}
	// Any block boundary before the end would do too.
	first := s.computed/tpb + 1
	if boundaries := (end-1)/tpb - first + 1; boundaries > 0 && rng.IntN(4) == 0 {
		end = (first + rng.IntN(boundaries)) * tpb
	}
	return end
}

// compute launches one kernel for some sequences and commits what it computes.
// Tables that are not known are asked for first.
func (a *application) compute() bool {
	list := a.some(func(s *sequence) bool { return s.computed < s.length() && !s.shared })
	if len(list) == 0 {
		return false
	}
	if slices.ContainsFunc(list, a.unknown) {
		return true
	}
	m := &messages.Commit{}
	ends, ok := a.launch(list)
	if !ok {
		return true
	}
	if a.world.rng.IntN(8) == 0 {
		a.releaseComputed(list, ends)
		return true
	}
	for i, s := range list {
		m.Steps = append(m.Steps, messages.CommitStep{
			Sequence: s.id, Computed: ends[i], After: s.last, SeparateRequest: a.world.rng.IntN(2) == 0,
		})
	}
	r := &request{kind: "commit", record: m, by: a, detail: fmt.Sprint(m.Steps)}
	r.then = func(err error) {
		for i := range m.Results {
			if err == nil {
				a.committed(r, list[i], &m.Results[i], ends[i])
			}
		}
	}
	a.world.submit(r)
	return true
}

// releaseComputed releases sequences with the commit of what the last kernel computes.
func (a *application) releaseComputed(list []*sequence, ends []int) {
	m := &messages.Release{}
	for i, s := range list {
		m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: s.id, Computed: ends[i], After: s.last})
	}
	r := &request{kind: "release", record: m, by: a, detail: fmt.Sprint(m.Steps)}
	r.then = func(err error) {
		if err == nil {
			a.released(r, list, m.Results)
		}
	}
	a.world.submit(r)
}

// unknown asks for the tables of a sequence if they are not known.
func (a *application) unknown(s *sequence) bool {
	if s.known {
		return false
	}
	m := &messages.ReadTables{Sequences: []messages.SequenceID{s.id}}
	r := &request{kind: "tables", record: m, by: a, detail: s.id.String()}
	r.then = func(err error) {
		if err != nil {
			return
		}
		result := &m.Results[0]
		a.world.expect(r, result.Err)
		a.drop(s, result.Err)
		if result.Err == nil {
			s.tables, s.known = cloneTables(result.Tables), true
			a.world.tellf("  tables of %v: %v", s.id, s.tables)
		}
	}
	a.world.submit(r)
	return true
}

// launch starts the kernel; it answers how far each sequence is computed then.
func (a *application) launch(list []*sequence) (ends []int, ok bool) {
	step := host.Step{Label: fmt.Sprintf("step %d", a.world.step)}
	for _, s := range list {
		end, from := a.reach(s), s.computed
		if s.written > s.computed {
			// A commit was aborted: it may be tried again, but what it told of may
			// be others' by now, and is not written again.
			end, from = s.written, s.written
		}
		ends = append(ends, end)
		if !a.world.careless {
			step.Waits = append(step.Waits, s.ready...)
		}
		if a.world.encodes {
			a.encode(&step, s)
		}
		if a.world.recurrent && from < end {
			last := len(a.world.pools) - 1
			step.States = append(step.States, host.StateUpdate{
				Pool: messages.PoolID(last), Page: s.tables[last][0][0],
				From: host.StateAfter(s.beams[0], from), To: host.StateAfter(s.beams[0], end),
			})
		}
		for beam, chains := range s.beams {
			table := host.Beam(s.tables[:a.world.decoder()], beam)
			step.Reads = append(step.Reads, host.Span{Chains: chains, To: s.computed, Table: table})
			step.Writes = append(step.Writes, host.Span{Chains: chains, From: from, To: end, Table: table})
		}
	}
	ticket, err := a.writer.Launch(step)
	if err != nil {
		a.world.failf("host %d: kernel: %w", a.number, err)
		return nil, false
	}
	for i, s := range list {
		a.world.tellf("host %d: kernel %v writes [%d, %d) of %v, waits %v", a.number, ticket, s.computed,
			ends[i], s.id, s.ready)
		if !ticket.IsZero() { // there was something to write
			s.ready, s.last = nil, ticket
		}
		s.written = max(s.written, ends[i])
	}
	return ends, true
}

// encode adds the cross KV to a kernel: what is there is read, the rest written.
// The encoder runs once: a kernel that writes tokens of the decoder has written
// all of the input, whatever becomes of its commit.
func (a *application) encode(step *host.Step, s *sequence) {
	last := a.world.decoder()
	span := host.Span{Chains: s.input, To: s.encoded, Table: host.Table(s.tables[last]),
		First: messages.PoolID(last)}
	step.Reads = append(step.Reads, span)
	if s.encoded < len(s.input) {
		span.From, span.To = s.encoded, len(s.input)
		step.Writes = append(step.Writes, span)
		s.encoded = len(s.input)
	}
}

// committed follows one step of a commit.
func (a *application) committed(
	what fmt.Stringer, s *sequence, got *messages.StepResult, computed int,
) {
	a.world.expect(what, got.Err)
	a.drop(s, got.Err)
	if got.Err == nil {
		s.computed, s.known = computed, false
		s.ready = append(s.ready, got.Ready...)
	}
}

// drop forgets a sequence that was lost.
func (a *application) drop(s *sequence, err error) {
	if code(err) != messages.ErrSequenceLost {
		return
	}
	a.world.tellf("  sequence %v is lost", s.id)
	a.sequences = slices.DeleteFunc(a.sequences, func(t *sequence) bool { return t == s })
	a.gone = append(a.gone, messages.ReleaseStep{Sequence: s.id, After: s.last})
}
