package offloader_test

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// A page is evicted and taken by an onboard in the same Move. The shell's part
// is the loop.
func Example() {
	o := offloader.New(offloader.Config{MinPriority: 35, Pools: []offloader.PoolConfig{{
		Name: "wfullh1", HostPages: 4, PageBytes: 64,
		Regions: []windows.Region{{Runs: 2, TokenBytes: 4}}, TokensPerBlock: 8,
	}}})
	queued := map[offloader.Lane]uint64{}
	serve := func(pm protocol.PoolMove) {
		o.Begin(&protocol.Move{Pools: []protocol.PoolMove{pm}})
		for s := o.Next(); s != nil; s = o.Next() {
			for _, c := range s.Copies {
				fmt.Println(s.Lane, "after", s.Waits, "from page", c.Src.Page, "to page", c.Dst.Page)
			}
			queued[s.Lane]++
			o.Submitted(messages.Ticket{Stream: messages.StreamID(s.Lane) + 1, Seq: queued[s.Lane]}, -1)
		}
		o.Finish()
	}
	serve(protocol.PoolMove{Victims: []protocol.Victim{{Page: 3, Block: 7, Priority: 35, Use: 1}}})
	serve(protocol.PoolMove{
		Victims:  []protocol.Victim{{Page: 2, Block: 8, Priority: 35, Use: 1}},
		Onboards: []protocol.Onboard{{Block: 7, To: 2}},
	})
	fmt.Printf("%+v\n", o.Counts(0))
	// Output:
	// offload after [] from page 3 to page 0
	// offload after [] from page 2 to page 1
	// onboard after [{1 2}] from page 0 to page 2
	// {Total:4 Used:0 Cached:2 Free:2}
}
