package check_test

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// A kernel that does not wait for its page is reported, whatever it read.
func Example() {
	inner, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	dev := check.Wrap(inner, check.Options{})
	pool, _ := dev.CreatePool(gpu.PoolSpec{
		Name: "wfullh8", PageBytes: 4096, DevicePages: 4, HostPages: 4,
	})
	onboard, _ := dev.NewStream("onboard")
	compute, _ := dev.NewStream("compute")
	host := gpu.Slot{Pool: pool, Tier: messages.Secondary, Page: 1}
	page := gpu.Slot{Pool: pool, Tier: messages.Primary, Page: 3}
	dev.HostWrite(host)()

	_, _ = dev.Submit(onboard, &gpu.Batch{
		Label: "onboard", Copies: []gpu.Copy{{Src: host, Dst: page, Bytes: 4096}},
	})
	_, _ = dev.Launch(compute, gpu.Kernel{Label: "attention", Reads: []gpu.Access{{Slot: page}}})
	fmt.Println(dev.Problems()[0])
	// Output:
	// pool wfullh8 primary page 3: kernel "attention" (stream compute, operation 1) reads what copy "onboard" (stream onboard, operation 1) wrote; nothing orders compute after operation 1 of onboard: compute has waited for nothing of onboard
}
