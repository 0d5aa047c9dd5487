package wire

import "github.com/kvactor/kvactor/events/publish"

// log keeps the latest batches for replays.
// Publisher.mu protects it.
//
// Invariant: batches have the sequences [next−len(batches), next); their payloads
// together have bytes.
type log struct {
	// Both bound the log: batches of a busy engine are large, those of an idle one many.
	limit, limitBytes int
	batches           []*sent
	bytes             int
	next              uint64
}

// sent is a batch that has been published. It does not change any more.
// So it is read without a lock, by all goroutines that send it.
type sent struct {
	sequence uint64
	// Seconds since 1970. payload is for the sockets, changes for readers of HTTP.
	time    float64
	payload []byte
	changes []publish.Change
}

// first is the sequence of the oldest batch that is kept.
func (l *log) first() uint64 { return l.next - uint64(len(l.batches)) }

// push keeps a batch under the next sequence, and drops the oldest ones above the
// limits. The newest one stays, whatever its size.
func (l *log) push(s *sent) {
	s.sequence = l.next
	l.next++
	l.batches = append(l.batches, s)
	l.bytes += len(s.payload)
	drop := 0
	for len(l.batches)-drop > 1 && (len(l.batches)-drop > l.limit || l.bytes > l.limitBytes) {
		l.bytes -= len(l.batches[drop].payload)
		drop++
	}
	if drop > 0 {
		// Copied down now and then, so that the array is not longer than twice what is
		// kept; append does that when the array is full.
		clear(l.batches[:drop])
		l.batches = l.batches[drop:]
	}
}

// since returns the batches from a sequence on, and whether all of them are kept.
//
// The list is a copy, because push clears entries that it drops; the batches in it are
// shared.
func (l *log) since(start uint64) ([]*sent, bool) {
	if start < l.first() {
		return nil, false
	}
	// A reader that has everything, or one that followed an engine which counted further.
	if start >= l.next {
		return nil, true
	}
	return append([]*sent(nil), l.batches[start-l.first():]...), true
}
