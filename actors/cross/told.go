package cross

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

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
		both := &protocol.JoinSnapshot{Reader: r.Reader, Keys: keys.Keys, Since: keys.Next, Pool: j.pool.ID}
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
