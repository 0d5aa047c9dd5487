package events_test

import (
	"fmt"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A log of two events, a mirror that comes too late, and the snapshot that
// helps it.
func Example() {
	stored := func(name byte) messages.Event {
		block := messages.StoredBlock{Hash: messages.Hash{name}, Tokens: []messages.Token{1, 2}, Priority: messages.DefaultPriority}
		return messages.Event{Type: messages.EventStored, Blocks: []messages.StoredBlock{block}}
	}
	log, mirror := events.New(2), events.NewMirror()
	everything := protocol.WrapEvents([]messages.Event{stored(0xa0), stored(0xa1), stored(0xa2)})
	log.Append(everything)
	late, _ := events.Name(log.Take())
	fmt.Println(mirror.Follow(late))

	anew, _ := events.Name(log.Snapshot(everything))
	fmt.Println(mirror.Follow(anew))
	fmt.Print(mirror)
	// Output:
	// events: the mirror has missed events and needs a snapshot: 1 lost before event 1
	// <nil>
	// 3 keys, next event 3
	//   pool 0 a0 primary 35 (2 tokens)
	//   pool 0 a1 primary 35 (2 tokens)
	//   pool 0 a2 primary 35 (2 tokens)
}

// How much of a prompt has an engine whose events a mirror follows? Here it has
// the first two blocks; a tenant's prompt of the same tokens has other names.
func ExampleMirror_Match() {
	model := windows.Model{Layers: 2, KVHeads: []int{2}, HeadDim: 8, DType: windows.Float16, MaxSeqLen: 64}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 2
	pools, err := windows.Pools(model, cache)
	fmt.Println(err)
	prompt := messages.Prefix{Tokens: []messages.Token{1, 2, 3, 4, 5, 6, 7}}
	names, err := events.Names(prompt, cache.TokensPerBlock)
	fmt.Println(len(names), err)

	mirror := events.NewMirror()
	fmt.Println(mirror.Follow(messages.EventBatch{Snapshot: true, Events: []messages.Event{
		{Type: messages.EventStored, Blocks: []messages.StoredBlock{{Hash: names[0]}, {Hash: names[1]}}},
	}}))
	fmt.Println(mirror.Match(pools, names), "blocks")
	prompt.Namespace.Salt = "tenant"
	names, err = events.Names(prompt, cache.TokensPerBlock)
	fmt.Println(mirror.Match(pools, names), "blocks", err)
	// Output:
	// <nil>
	// 3 <nil>
	// <nil>
	// 2 blocks
	// 0 blocks <nil>
}
