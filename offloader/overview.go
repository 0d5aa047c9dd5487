package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Sample answers the states of host pages at equal distances.
func (o *Offloader) Sample(m *protocol.SampleHost) {
	m.Samples = m.Samples[:0]
	var ids []messages.PageID
	for p := range o.hosts {
		h := &o.hosts[p]
		ids = protocol.SampledPages(ids[:0], len(h.pages), m.Pages)
		samples := make([]inspect.PageSample, 0, len(ids))
		for _, id := range ids {
			samples = append(samples, h.sample(id))
		}
		m.Samples = append(m.Samples, samples)
	}
}

// sample describes one page.
func (h *hostPool) sample(id messages.PageID) inspect.PageSample {
	pg, s := &h.pages[id], inspect.PageSample{Page: id}
	switch pg.state {
	case sole:
		s.State, s.Priority, s.Age = inspect.PageCached, pg.priority, pg.age
		if pg.pins > 0 {
			s.State = inspect.PageUsed
		}
	case clean:
		s.State, s.Priority = inspect.PageCopy, pg.priority
	case loading:
		s.State = inspect.PageUsed
	default: // Decisions take copies ahead for free pages, and so does who looks at them.
	}
	return s
}
