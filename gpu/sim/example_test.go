package sim_test

import (
	"context"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// One page goes to the device on one stream; a kernel on another waits for it.
func Example() {
	dev, err := sim.New(sim.Config{MemoryBytes: 64 << 20, Profile: "h100-pcie5"})
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	pool, _ := dev.CreatePool(gpu.PoolSpec{
		Name: "wfullh8", PageBytes: 2 << 20, DevicePages: 4, HostPages: 4,
	})
	onboard, _ := dev.NewStream("onboard")
	compute, _ := dev.NewStream("compute")
	host := gpu.Slot{Pool: pool, Tier: messages.Secondary, Page: 1}
	page := gpu.Slot{Pool: pool, Tier: messages.Primary, Page: 3}
	copy(dev.HostBytes(pool, 1), "keys and values")

	arrived, _ := dev.Submit(onboard, &gpu.Batch{
		Copies: []gpu.Copy{{Src: host, Dst: page, Bytes: 2 << 20}},
	})
	done, _ := dev.Launch(compute, gpu.Kernel{
		Label: "attention", Waits: []gpu.Ticket{arrived}, Reads: []gpu.Access{{Slot: page}},
		Nanos: 10_000,
		Run:   func(bytes gpu.PageBytes) { fmt.Printf("%s\n", bytes(page)[:15]) },
	})
	fmt.Println("queued at", dev.Now())
	_ = dev.Sync(context.Background(), done)
	fmt.Println("done at", dev.Now())
	// Output:
	// queued at 0s
	// keys and values
	// done at 57.905µs
}
