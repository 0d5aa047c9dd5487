package events_test

import (
	"fmt"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
)

// A log of two events, a mirror that comes too late, and the snapshot that
// helps it.
func Example() {
	stored := func(name byte) messages.Event {
		block := messages.StoredBlock{Hash: messages.Hash{name}, Tokens: []messages.Token{1, 2}, Priority: messages.DefaultPriority}
		return messages.Event{Type: messages.EventStored, Blocks: []messages.StoredBlock{block}}
	}
	log, mirror := events.New(2), events.NewMirror()
	log.Append([]messages.Event{stored(0xa0), stored(0xa1), stored(0xa2)})
	fmt.Println(mirror.Follow(log.Take()))

	everything := []messages.Event{stored(0xa0), stored(0xa1), stored(0xa2)}
	fmt.Println(mirror.Follow(log.Snapshot(everything)))
	fmt.Print(mirror)
	// Output:
	// events: the mirror has missed events and needs a snapshot: 1 lost before event 1
	// <nil>
	// 3 keys, next event 3
	//   pool 0 a0 primary 35 (2 tokens)
	//   pool 0 a1 primary 35 (2 tokens)
	//   pool 0 a2 primary 35 (2 tokens)
}
