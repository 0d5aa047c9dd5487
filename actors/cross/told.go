package cross

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Adapt makes of what the cross side's tree tells what readers hear: it is of
// the cross pool, and padding is no token. Names and parents are right as they
// are, since the namespace has the whole input.
func Adapt(events []protocol.Event, pool messages.PoolID, tokensPerBlock int) {
	for i := range events {
		e := &events[i]
		e.Pool += pool
		if e.Type != messages.EventStored {
			continue
		}
		for k := range e.Spans {
			s := &e.Spans[k]
			end := int(s.Naming.Depth+s.From+s.Count) * tokensPerBlock
			s.Padding = int32(max(0, end-keyLength(keyOf(s.Naming))))
		}
	}
}

// keyOf is the key of the input that a naming is of.
func keyOf(k *protocol.Naming) string {
	for k.After != nil {
		k = k.After
	}
	return k.Namespace.Encoder
}

// readEvents reads what both sides have told to one log. What the encoder's side
// was served last has been told when it has served another request.
func (j *Join) readEvents(r *messages.ReadEvents) {
	j.toEncoder(&messages.ReadStats{}, served(func(j *Join) { j.toDecoder(r, (*Join).passed) }))
}

// readSnapshot reads the keys of both sides at one moment: the cross side's
// first, once more if it has told of anything until the decoder's were read. It
// does nothing of its own but recover from failures, so that ends.
func (j *Join) readSnapshot(r *messages.ReadSnapshot) {
	keys := &protocol.ReadKeys{}
	j.toEncoder(keys, served(func(j *Join) {
		Adapt(keys.Keys, j.pool.ID, j.config.TokensPerBlock)
		both := &protocol.JoinSnapshot{Keys: keys.Keys, Since: keys.Next, Pool: j.pool.ID}
		j.toDecoder(both, served(func(j *Join) {
			if both.Stale {
				j.readSnapshot(r)
				return
			}
			r.Batch, r.Err = both.Batch, both.Err
			j.reply()
		}))
	}))
}
