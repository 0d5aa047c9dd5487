package attention

import "fmt"

// Metadata describes the sequences of one step, as TensorRT-LLM's
// AttentionMetadata does: contexts first, then generations.
type Metadata struct {
	NumContexts int
	Sequences   []Sequence
	// PaddedTo is the row count that each sequence has in padded tensors, at
	// least its new tokens; 0 is packed: rows lie one behind the other.
	PaddedTo int
	// TokensPerBlock, if set, makes Prepare refuse a context chunk that ends
	// inside a block before the end of the prompt.
	TokensPerBlock int
}

// Sequence is one sequence of a step.
type Sequence struct {
	Prompt int // tokens of the prompt
	Cached int // tokens whose keys and values are in the cache
	New    int // tokens of this step, of each beam
	Beams  int // of a generation; 0 means 1. A context is computed once
	// Keys is the number of encoder tokens that cross attention reads; 0 in self
	// attention.
	Keys int
}

// Plan is the metadata of a step in the form that kernels use. It is prepared
// once a step and serves all layers. The zero Plan is empty.
type Plan struct {
	streams []stream
	tiles   []tile
	rows    int // of the tensors, padding included
	tokens  int // of all streams
	// maxKeys is the length of the longest row of scores.
	maxKeys int
}

// stream is a sequence or one beam of it.
type stream struct {
	row    int // of its first new token
	n      int
	cached int
	// keys are those that its last query sees without a window; in cross attention, the
	// encoder's tokens.
	keys    int
	context bool
}

// tile is a run of rows of one stream: the unit of work, with a KV head.
type tile struct{ stream, first, n int }

// tileRows bounds a tile. Four rows of a group of query heads share each key
// that is read; more would only lengthen the scores that are kept meanwhile.
const tileRows = 4

// Prepare validates the metadata and makes the plan. What it refuses names the
// sequence.
func (p *Plan) Prepare(m Metadata) error {
	if err := m.validate(); err != nil {
		return err
	}
	p.streams, p.tiles = p.streams[:0], p.tiles[:0]
	p.rows, p.tokens, p.maxKeys = 0, 0, 0
	for i, s := range m.Sequences {
		// Beams of a sequence are streams of their own, with a row for each new token.
		beams := max(s.Beams, 1)
		for range beams {
			st := stream{row: p.rows, n: s.New, cached: s.Cached, keys: s.Cached + s.New,
				context: i < m.NumContexts}
			if s.Keys > 0 {
				st.keys = s.Keys
			}
			p.maxKeys = max(p.maxKeys, st.keys)
			for first := 0; first < s.New; first += tileRows {
				p.tiles = append(p.tiles, tile{stream: len(p.streams), first: first,
					n: min(tileRows, s.New-first)})
			}
			p.streams = append(p.streams, st)
			p.tokens += s.New
			p.rows += s.New
		}
		// Rows of padding come behind those of the sequence; no stream has them.
		if m.PaddedTo > 0 {
			p.rows += m.PaddedTo - s.New*beams
		}
	}
	return nil
}

// Rows is the number of rows that tensors of the step have, padding included.
func (p *Plan) Rows() int { return p.rows }

// Streams is the number of sequences, each beam of a generation counted.
// A cache is addressed by their numbers, in the order of the sequences.
func (p *Plan) Streams() int { return len(p.streams) }

// Row is the row of the first new token of a stream.
func (p *Plan) Row(stream int) int { return p.streams[stream].row }

// validate refuses a step that no kernel can compute. The error names the sequence by its index.
func (m *Metadata) validate() error {
	if m.NumContexts < 0 || m.NumContexts > len(m.Sequences) {
		return fmt.Errorf("%d contexts among %d sequences", m.NumContexts, len(m.Sequences))
	}
	if m.PaddedTo < 0 {
		return fmt.Errorf("padded to %d rows", m.PaddedTo)
	}
	for i := range m.Sequences {
		if err := m.validateSequence(i); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	return nil
}

// validateSequence refuses numbers of one sequence that contradict each other. Contexts have the
// rules of prefill in chunks: a chunk stays within the prompt, and ends at a block boundary or at
// the prompt's end.
func (m *Metadata) validateSequence(i int) error {
	s, context := m.Sequences[i], i < m.NumContexts
	end := s.Cached + s.New
	switch {
	case s.New < 1 || s.Cached < 0 || s.Prompt < 1 || s.Beams < 0 || s.Keys < 0:
		return fmt.Errorf("%d new, %d cached tokens, a prompt of %d, %d beams, %d encoder tokens", s.New,
			s.Cached, s.Prompt, s.Beams, s.Keys)
	case m.PaddedTo > 0 && s.New*max(s.Beams, 1) > m.PaddedTo:
		return fmt.Errorf("%d new tokens of %d beams do not fit into %d padded rows", s.New,
			max(s.Beams, 1), m.PaddedTo)
	case context && end > s.Prompt:
		return fmt.Errorf(
			"a context of tokens %d to %d leaves the prompt of %d: generations come behind the contexts",
			s.Cached, end, s.Prompt)
	case context && s.Beams > 1:
		return fmt.Errorf("a context with %d beams: it is computed once", s.Beams)
	// The engine commits whole blocks of a prompt that is not computed to its end.
	case context && end < s.Prompt && m.TokensPerBlock > 0 && end%m.TokensPerBlock != 0:
		return fmt.Errorf("a chunk that ends at token %d of a prompt of %d, not at a block of %d", end,
			s.Prompt, m.TokensPerBlock)
	case !context && s.Cached < s.Prompt:
		return fmt.Errorf("a generation with %d tokens cached of a prompt of %d: contexts come first",
			s.Cached, s.Prompt)
	}
	return nil
}
