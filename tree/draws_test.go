package tree

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

func (m *model) int(low, high int, what string) int {
	return rapid.IntRange(low, high).Draw(m.T, what)
}

func (m *model) namespace() messages.Namespace {
	return rapid.SampledFrom([]messages.Namespace{
		{}, {}, {Salt: "a"}, {Salt: "a", LoRA: "", HasLoRA: true},
	}).Draw(m.T, "namespace")
}

// input draws the input of an encoder, padded to whole blocks, with the namespace
// that has its key. The decoder's prompts are in that namespace too, with others.
func (m *model) input() (ns space, tokens []messages.Token, full []atom, length int) {
	length = m.int(1, 2*m.oracle.tpb, "length")
	blocks := (length + m.oracle.tpb - 1) / m.oracle.tpb
	for i := range blocks * m.oracle.tpb {
		tok := messages.Token(0)
		if i < length {
			tok = messages.Token(m.int(0, 1, "token"))
		}
		tokens, full = append(tokens, tok), append(full, atom{token: tok})
	}
	ns = space{m.namespace(), true}
	ns.Encoder = fmt.Sprint(tokens[:length])
	return ns, tokens, full, length
}

// encodes draws whether a request is one of the encoder's input.
func (m *model) encodes() bool {
	return m.oracle.pools[len(m.oracle.pools)-1].Cross && m.int(0, 2, "encoder") == 0
}

// decoder draws the namespace of a prompt; that of an encoder's input, sometimes.
func (m *model) decoder() space {
	ns := space{m.namespace(), false}
	if m.oracle.pools[len(m.oracle.pools)-1].Cross && m.int(0, 1, "encoder") == 0 {
		ns.Encoder = "[0 1]"
	}
	return ns
}

// prompt draws host tokens and items; what the tree should make of them.
func (m *model) prompt() (tokens []messages.Token, items []messages.MultimodalItem, full []atom) {
	n := m.int(1, 5*m.oracle.tpb+1, "length")
	for range n {
		tokens = append(tokens, messages.Token(m.int(0, 1, "token")))
	}
	for _, tok := range tokens {
		full = append(full, atom{token: tok})
	}
	if m.int(0, 3, "items") == 0 {
		start := m.int(0, n-1, "start")
		length := m.int(1, min(3, n-start), "covered")
		h := byte(m.int(1, 2, "item"))
		items = append(items, messages.MultimodalItem{Hash: [32]byte{h}, Start: start, Length: length})
		for i := range length {
			full[start+i].covered, full[start+i].hash, full[start+i].position = true, h, i
		}
	}
	return tokens, items, full
}

func (m *model) retention() *messages.Retention {
	if m.int(0, 2, "retention") > 0 {
		return nil
	}
	duration := func() time.Duration { return time.Duration(m.int(0, 3, "duration")) * time.Second }
	priority := func() messages.Priority {
		return rapid.SampledFrom([]messages.Priority{0, 35, 90}).Draw(m.T, "priority")
	}
	a, b := m.int(0, 5, "range"), m.int(1, 6, "range")
	r := &messages.Retention{Ranges: []messages.RetentionRange{
		{Start: a + b, End: messages.EndOfPrompt, Priority: priority(), Duration: duration()},
		{Start: a, End: a + b, Priority: priority(), Duration: duration()},
	}}
	r.Ranges = r.Ranges[:m.int(0, 2, "ranges")]
	if m.int(0, 1, "decode") == 0 {
		r.Decode = &messages.DecodeRetention{Priority: priority(), Duration: duration()}
	}
	return r
}

func (m *model) session() string {
	return rapid.SampledFrom([]string{"", "s", "t"}).Draw(m.T, "session")
}
