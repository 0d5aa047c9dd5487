package host_test

import (
	"context"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/host"
	"github.com/kvactor/kvactor/messages"
)

// A client writes a page of the pool; the copy of the page waits until it has said so.
func Example() {
	dev, err := host.New(host.Config{MemoryBytes: 64 << 20})
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	pool, _ := dev.CreatePool(gpu.PoolSpec{
		Name: "wfullh8", PageBytes: 64 << 10, DevicePages: 4, HostPages: 4,
	})
	client, _ := dev.NewStream("client")
	offload, _ := dev.NewStream("offload")
	page := gpu.Slot{Pool: pool, Tier: messages.Primary, Page: 2}
	kept := gpu.Slot{Pool: pool, Tier: messages.Secondary, Page: 1}

	written, _ := dev.NewTicket(client, "client writes")
	copied, _ := dev.Submit(offload, &gpu.Batch{
		Waits: []gpu.Ticket{written}, Copies: []gpu.Copy{{Src: page, Dst: kept, Bytes: 64 << 10}},
	})
	fmt.Println("copied:", dev.Done(copied))
	_ = dev.Complete(written, nil)
	_ = dev.Sync(context.Background(), copied)
	fmt.Println("copied:", dev.Done(copied))
	// Output:
	// copied: false
	// copied: true
}
