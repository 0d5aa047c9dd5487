package forecast

import "unsafe"

// Bytes is the memory of the policy: its history and what it has learned, all of which New makes, and room for two lists of the
// blocks of its longest request.
//
// For n pages it is, without that room, at most
//
//	 99 KiB + 0.5 × n bytes   up to 13,653 pages
//	129 KiB + 0.5 × n bytes   up to 49,999, which is at most 4 × n bytes from 37,800 on
//	          3.3 × n bytes   from 50,000 on
func (p *Policy) Bytes() int {
	if p.checkpoints != nil {
		return int(unsafe.Sizeof(*p) + unsafe.Sizeof(*p.checkpoints))
	}
	return int(unsafe.Sizeof(*p)) + p.model.bytes() + p.watch.bytes() + p.sessions.bytes() + p.guard.lru.bytes() + p.filter.bytes()
}

func (m *model) bytes() int {
	n := int(unsafe.Sizeof(*m))
	for i := range m.scale {
		n += bytesOf(m.scale[i]) + bytesOf(m.weight[i])
	}
	return n
}

func (w *watch) bytes() int {
	return int(unsafe.Sizeof(table[int32]{})) + w.index.bytes() + bytesOf(w.ring)
}

func (t *table[T]) bytes() int { return bytesOf(t.heads) + bytesOf(t.next) + bytesOf(t.tags) }

func (s *sessions) bytes() int { return bytesOf(s.tags) + bytesOf(s.times) + bytesOf(s.ends) }

func (l *lruList[T]) bytes() int {
	return int(unsafe.Sizeof(*l)) + l.index.bytes() + bytesOf(l.list) + bytesOf(l.weight)
}

func (f *filter) bytes() int {
	return int(unsafe.Sizeof(*f)) + bytesOf(f.words) + bytesOf(f.found) + bytesOf(f.drawn)
}

// bytesOf is the memory of a list.
func bytesOf[T any](list []T) int {
	var one T
	return cap(list) * int(unsafe.Sizeof(one))
}
