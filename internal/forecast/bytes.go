package forecast

import "unsafe"

// Bytes is the memory of the policy: its history and what it has learned, all of which New makes, and room for two lists of the
// blocks of its longest request.
//
// For n pages it is, without that room, at most
//
//	132 KiB + 0.7 × n bytes   up to 13,653 pages
//	184 KiB + 0.7 × n bytes   up to 56,099
//	          4   × n bytes   from 56,100 on
func (p *Policy) Bytes() int {
	if p.checkpoints != nil {
		return int(unsafe.Sizeof(*p) + unsafe.Sizeof(*p.checkpoints))
	}
	return int(unsafe.Sizeof(*p)) + p.model.bytes() + p.watch.bytes() + p.sessions.bytes() + p.guard.bytes() + p.filter.bytes()
}

func (m *model) bytes() int {
	n := int(unsafe.Sizeof(*m))
	for i := range m.scale {
		n += bytesOf(m.scale[i]) + bytesOf(m.weight[i])
	}
	return n
}

func (w *watch) bytes() int { return w.index.bytes() + bytesOf(w.ring) + bytesOf(w.due) }

func (t *table) bytes() int { return bytesOf(t.heads) + bytesOf(t.next) + bytesOf(t.tags) }

func (s *sessions) bytes() int { return bytesOf(s.tags) + bytesOf(s.ends) }

func (g *guard) bytes() int { return g.index.bytes() + bytesOf(g.list) + bytesOf(g.weight) }

func (f *filter) bytes() int {
	return int(unsafe.Sizeof(*f)) + bytesOf(f.words) + bytesOf(f.found) + bytesOf(f.drawn)
}

// bytesOf is the memory of a list.
func bytesOf[T any](list []T) int {
	var one T
	return cap(list) * int(unsafe.Sizeof(one))
}
