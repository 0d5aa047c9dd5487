package load

import (
	"errors"
	"slices"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
)

// advance takes some of the sequences a step further.
func (h *host) advance() {
	var prefill, decode []*chat
	for _, c := range h.running {
		switch {
		case h.rand.IntN(4) == 0:
		case c.seq.Computed() < c.seq.Prompt():
			prefill = append(prefill, c)
		case c.seq.Len()+4 > maxSeqLen:
			h.release(c)
			return
		default:
			decode = append(decode, c)
		}
	}
	h.prefill(prefill)
	h.settleDrafts(&decode)
	h.decode(decode)
	h.rewind(decode)
}

// part is what a kernel does for one sequence.
type part struct {
	*chat
	to    int // tokens whose rows are in the pages then
	state int // tokens after which it writes the state; -1: it leaves it
}

// launch queues a kernel on the host's stream.
func (h *host) launch(label string, parts []part) {
	if len(parts) == 0 {
		return
	}
	w, queries := h.w, make([]kvactor.Query, len(parts))
	for i, p := range parts {
		queries[i] = kvactor.Query{Sequence: p.seq, To: p.to}
	}
	h.inputs.Fill(w.engine, queries)
	run := kernel{w: w, label: label}
	k := gpu.Kernel{Label: label, Nanos: int64(1000 + h.rand.IntN(9000))}
	k.Waits = slices.Clone(h.inputs.Ready)
	for _, p := range parts {
		k.Waits = append(k.Waits, p.waits...)
	}
	k.Reads, k.Writes = h.inputs.Accesses(w.engine)
	for i := range h.inputs.NumRows {
		p, beam := parts[h.inputs.Queries[i]], h.inputs.Beams[i]
		run.rows = append(run.rows, h.row(p, p.beams[beam], i))
		if beam == 0 {
			h.accesses(p, &k, &run.rows[i])
		}
	}
	k.RunRank = run.run
	ticket, err := w.device.(gpu.Launcher).Launch(h.stream, k)
	if err != nil {
		w.problem("launch: %v", err)
		return
	}
	for _, p := range parts {
		p.last, p.encoded, p.written = ticket, true, max(p.written, p.to)
		p.waits = nil
		p.spoiled = p.spoiled || p.state > p.seq.Computed()
	}
}

// row copies what the kernel needs of a row of the inputs.
func (h *host) row(p part, chain []uint64, i int) row {
	r := row{
		sequence: p.seq.ID(), from: p.seq.Computed(), kept: min(p.written, p.to), to: p.to,
		chain: chain, state: p.state, input: p.inputRows(), encode: !p.encoded,
	}
	from, to := h.inputs.QueryStarts[i], h.inputs.QueryStarts[i+1]
	for at := range h.inputs.Pools {
		in := &h.inputs.Pools[at]
		table := slices.Clone(in.BlockTables[i*in.Stride : (i+1)*in.Stride])
		var slots []int64
		if len(in.Slots) > 0 {
			slots = slices.Clone(in.Slots[from:to])
		}
		r.tables, r.slots = append(r.tables, table), append(r.slots, slots)
	}
	return r
}

// accesses adds the pages that Inputs do not list: of states and of the encoder.
func (h *host) accesses(p part, k *gpu.Kernel, r *row) {
	for at := range h.w.pools {
		writes := r.encode
		switch h.w.pools[at].Kind {
		case kvactor.KindAttention:
			continue
		case kvactor.KindState:
			writes = r.state >= 0
		}
		for _, page := range r.tables[at] {
			if page == kvactor.NoPage {
				continue
			}
			slot := gpu.Slot{Pool: h.w.handles[at], Tier: kvactor.Primary, Page: page}
			access := gpu.Access{Slot: slot}
			if writes {
				k.Writes = append(k.Writes, access)
			} else {
				k.Reads = append(k.Reads, access)
			}
		}
	}
}

// prefill computes a piece of each prompt.
func (h *host) prefill(list []*chat) {
	parts, steps := make([]part, len(list)), make([]kvactor.Step, len(list))
	for i, c := range list {
		end := h.piece(c)
		parts[i] = part{c, end, end}
	}
	h.launch("prefill", parts)
	for i, c := range list {
		steps[i] = kvactor.Step{Sequence: c.seq, Computed: parts[i].to, After: c.last}
	}
	h.commit(list, steps)
}

// piece is the end of the next piece of a prompt.
func (h *host) piece(c *chat) int {
	tpb, n, end := h.w.cache.TokensPerBlock, c.seq.Computed(), c.seq.Prompt()
	switch {
	case c.chunk > 0:
		end = min(end, (n+c.chunk)/tpb*tpb)
	case h.rand.IntN(3) == 0:
		end = min(end, (n/tpb+1+h.rand.IntN(4))*tpb)
	}
	for _, at := range c.seq.Admitted().Checkpoints {
		if at > n {
			end = min(end, at)
		}
	}
	return end
}

// commit commits steps, and releases what is lost.
func (h *host) commit(list []*chat, steps []kvactor.Step) {
	h.steps("commit", steps, h.w.engine.Commit)
	for i, c := range list {
		switch err := steps[i].Err; {
		case err == nil:
			c.spoiled = false
		case h.faulty(err):
			h.release(c)
		default:
			h.w.problem("commit of %d: %v", steps[i].Computed, err)
		}
	}
}

// settleDrafts accepts drafts of an earlier kernel, whose rows are in the pages already. What
// remains in the list has not been released.
func (h *host) settleDrafts(list *[]*chat) {
	var accepted []*chat
	var parts []part
	for _, c := range *list {
		if n := c.seq.Computed(); c.written > n && h.rand.IntN(2) == 0 {
			to := n + 1 + h.rand.IntN(c.written-n)
			accepted, parts = append(accepted, c), append(parts, part{c, to, to})
		}
	}
	if h.w.model.Recurrent() {
		h.launch("state", parts)
	}
	steps := make([]kvactor.Step, len(parts))
	for i, p := range parts {
		p.waits = append(p.waits, p.seq.Ready()...)
		steps[i] = kvactor.Step{Sequence: p.seq, Computed: p.to, After: p.last}
	}
	h.commit(accepted, steps)
	h.w.count("drafts accepted later", len(accepted))
	h.alive(list)
}

// alive removes from a list what the host has released.
func (h *host) alive(list *[]*chat) {
	*list = slices.DeleteFunc(*list, func(c *chat) bool { return !slices.Contains(h.running, c) })
}

// decode appends tokens, computes them and commits some.
func (h *host) decode(list []*chat) {
	list = h.append(list)
	var parts []part
	var computed []*chat
	for _, c := range list {
		if len(c.beams) == 1 && h.rand.IntN(5) == 0 {
			continue // computed with the next tokens
		}
		p := part{c, c.seq.Len(), c.seq.Len()}
		if len(c.beams) == 1 && h.rand.IntN(2) == 0 {
			p.state = -1 // some tokens are drafts
		}
		computed, parts = append(computed, c), append(parts, p)
	}
	h.launch("decode", parts)
	var states []part
	steps := make([]kvactor.Step, len(parts))
	for i, p := range parts {
		n := p.seq.Computed()
		steps[i] = kvactor.Step{Sequence: p.seq, Computed: p.to}
		if p.state < 0 {
			steps[i].Computed = n + h.rand.IntN(p.to-n+1)
			if steps[i].Computed > n {
				states = append(states, part{p.chat, steps[i].Computed, steps[i].Computed})
			}
		}
	}
	if h.w.model.Recurrent() {
		h.launch("state", states)
	}
	for i, c := range computed {
		steps[i].After = c.last
	}
	h.commit(computed, steps)
}

// append appends a token to each sequence, to some also drafts, and returns those that have got
// their pages.
func (h *host) append(list []*chat) []*chat {
	steps := make([]kvactor.Step, len(list))
	for i, c := range list {
		st := &steps[i]
		st.Sequence, st.After = c.seq, c.last
		for beam := range c.beams {
			if len(c.beams) > 1 {
				parent := h.rand.IntN(len(c.beams))
				st.Beams = append(st.Beams, kvactor.BeamStep{Parent: parent, Token: kvactor.Token(beam)})
				continue
			}
			for range 1 + h.rand.IntN(2)*h.rand.IntN(4) {
				st.Tokens = append(st.Tokens, kvactor.Token(h.rand.IntN(3)))
			}
		}
		if n := c.seq.Computed(); c.written > n && !h.w.model.Recurrent() && h.rand.IntN(2) == 0 {
			st.Computed = n + h.rand.IntN(c.written-n+1)
			c.waits = append(c.waits, c.seq.Ready()...)
		}
	}
	h.steps("append", steps, h.w.engine.Append)
	var grown []*chat
	for i, c := range list {
		switch err := steps[i].Err; {
		case err == nil:
			h.extend(c, &steps[i])
			grown = append(grown, c)
		case errors.Is(err, kvactor.ErrOutOfPages), h.faulty(err):
			h.release(c)
		default:
			h.w.problem("append: %v", err)
		}
	}
	return grown
}

// extend adds to a chat what was appended to its sequence.
func (h *host) extend(c *chat, st *kvactor.Step) {
	if len(c.beams) == 1 {
		c.beams = [][]uint64{c.prompt.extend(c.beams[0], st.Tokens)}
		c.tokens = append(c.tokens, st.Tokens...)
	} else {
		var beams [][]uint64
		for _, b := range st.Beams {
			beams = append(beams, c.prompt.extend(c.beams[b.Parent], []kvactor.Token{b.Token}))
		}
		c.beams = beams
		h.w.count("beams appended", len(beams))
	}
	if n := c.seq.Len(); n != len(c.beams[0]) {
		h.w.problem("sequence %v has %d tokens, the host %d", c.seq.ID(), n, len(c.beams[0]))
	}
}

// rewind drops tokens of some sequences: drafts, or also computed ones.
func (h *host) rewind(list []*chat) {
	h.alive(&list)
	var dropped []*chat
	var steps []kvactor.Step
	for _, c := range list {
		least := c.seq.Computed()
		if !h.w.model.Recurrent() && h.rand.IntN(4) == 0 {
			least = c.seq.Prompt()
		}
		n := c.seq.Len() - max(least, c.seq.Prompt())
		if n > 0 && len(c.beams) == 1 && h.rand.IntN(3) == 0 {
			dropped = append(dropped, c)
			steps = append(steps, kvactor.Step{Sequence: c.seq, Rewind: 1 + h.rand.IntN(n)})
		}
	}
	h.steps("rewind", steps, h.w.engine.Rewind)
	for i, c := range dropped {
		switch err := steps[i].Err; {
		case err == nil:
			n := c.seq.Len()
			c.beams, c.tokens, c.written = [][]uint64{c.beams[0][:n]}, c.tokens[:n], min(c.written, n)
		case errors.Is(err, kvactor.ErrNotSupported): // its window has passed
		case h.faulty(err):
			h.release(c)
		default:
			h.w.problem("rewind: %v", err)
		}
	}
}
