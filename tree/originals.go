package tree

import "github.com/kvactor/kvactor/internal/protocol"

// ReadTokens answers tokens as the host has passed them, and which items cover them. The
// sequence that asks holds the symbols of its prompt, so each of them has an entry.
func (t *Tree) ReadTokens(m *protocol.ReadTokens) {
	m.Covers = t.base.symbols.covers(m.Tokens)
	t.base.symbols.restore(m.Tokens)
}
