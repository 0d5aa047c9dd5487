package events_test

import (
	"fmt"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// A log of two events, a mirror that comes too late, and the snapshot that helps it.
func Example() {
	log, mirror := events.New(events.Config{Limit: 2, Engine: "engine"}), events.NewMirror()
	read := func(batch kvevents.EventBatch, err error) kvevents.EventBatch { return batch }
	// A tree tells of three prompts of two tokens each.
	everything := &protocol.Changes{}
	for b := range protocol.BlockID(3) {
		everything.Blocks, everything.Tokens = append(everything.Blocks, b),
			append(everything.Tokens, 7, messages.Token(b))
		everything.Namespaces = append(everything.Namespaces, messages.Namespace{})
		everything.List = append(everything.List,
			protocol.Change{
				Kind: protocol.BlocksEntered, Last: b, Count: 1, Parent: protocol.NoBlock, Tokens: 2,
			},
			protocol.Change{Kind: protocol.BlocksStored, Last: b, Count: 1,
				Priority: messages.DefaultPriority})
	}
	log.Append(everything)
	fmt.Println(mirror.Follow(read(log.Take(events.FirstReader))))
	fmt.Println(mirror.Follow(read(log.Snapshot(events.FirstReader, everything))))
	fmt.Print(mirror)
	// Output:
	// events: the mirror has missed events and needs a snapshot: 1 lost before event 1
	// <nil>
	// 3 keys, next event 3
	//   pool 0 2720d627f694e334 primary 35 (2 tokens)
	//   pool 0 4ded99d704778b60 primary 35 (2 tokens)
	//   pool 0 65eae1957ca2945b primary 35 (2 tokens)
}

// How much of a prompt has an engine whose events a mirror follows? Here it has
// the first two blocks; a tenant's prompt of the same tokens has other names.
func ExampleMirror_Match() {
	model := windows.Model{
		Layers: 2, KVHeads: []int{2}, HeadDim: 8, DType: windows.Float16, MaxSeqLen: 64,
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 2
	pools, err := windows.Pools(model, cache)
	fmt.Println(err)
	prompt := messages.Prefix{Tokens: []messages.Token{1, 2, 3, 4, 5, 6, 7}}
	names, err := events.Names(prompt, cache.TokensPerBlock)
	fmt.Println(len(names), err)

	mirror := events.NewMirror()
	fmt.Println(mirror.Follow(kvevents.EventBatch{Snapshot: true, Events: []kvevents.Event{
		{Type: kvevents.EventStored, Blocks: []kvevents.StoredBlock{{Hash: names[0]}, {Hash: names[1]}}},
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
