package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Sample answers the states of host pages at equal distances.
func (o *Offloader) Sample(m *protocol.SampleHost) {
	m.Samples = m.Samples[:0]
	var ids []messages.PageID
	for p := range o.hosts {
		h := &o.hosts[p]
		ids = protocol.SampledPages(ids[:0], len(h.pages), m.Pages)
		samples := make([]messages.PageSample, 0, len(ids))
		for _, id := range ids {
			samples = append(samples, h.sample(id))
		}
		m.Samples = append(m.Samples, samples)
	}
}

// sample describes one page.
func (h *hostPool) sample(id messages.PageID) messages.PageSample {
	pg, s := &h.pages[id], messages.PageSample{Page: id}
	switch pg.state {
	case sole:
		s.State, s.Priority, s.Age = messages.PageCached, pg.priority, pg.age
		if pg.pins > 0 {
			s.State = messages.PageUsed
		}
	case clean:
		s.State, s.Priority = messages.PageCopy, pg.priority
	case loading:
		s.State = messages.PageUsed
	default: // Decisions take copies ahead for free pages, and so does who looks at them.
	}
	return s
}
