package actors

import (
	"fmt"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// PoolMemory is what the host application says of the memory that the pages of one pool
// lie in. What it gives it has allocated; it keeps that until Close has returned no error,
// and frees it.
type PoolMemory struct {
	// Tensors are the device memory, for example a tensor for each layer: each has a
	// piece of every page, at Address + page × Stride, and the pieces of a page are
	// windows.Pool.PageBytes bytes together, in the order in which View describes
	// them. nil: the engine takes device memory. The pool keeps its number of device
	// pages: a Rebalance or Resize that would change it is refused
	// (messages.ErrNotSupported), and WithAutoRebalance is refused by Spawn. A
	// simulated device refuses tensors, because its kernels are Go functions. On a group
	// of devices each rank has tensors of its own (gpu.Tensor.Rank).
	Tensors []gpu.Tensor
	// Host is the host memory, at least as many bytes as the pool's secondary pages
	// have, on a group of devices for each rank; nil: the engine takes host memory. Bytes
	// beyond hold pages on their way to a store, if the engine has one, then copies that are
	// made ahead of demand.
	Host []byte
	// Shared asks for memory that other processes can map, where the device has such:
	// gpu/cuda exports a pool by its handle (Engine.DevicePools). Processes that have mapped
	// the pool leave pages before a Rebalance or Resize takes them, which therefore is the
	// host's to ask for: WithAutoRebalance is refused by Spawn. Memory that the host gives
	// is the host's to share, and refused together with Shared.
	Shared bool
}

// memoryOf is the host's memory of a pool.
func (c *Config) memoryOf(pool int) PoolMemory {
	if c.Memory == nil {
		return PoolMemory{}
	}
	return c.Memory[pool]
}

// pagesBeyond is how many pages the host's memory of a pool has room for beyond the
// secondary ones.
func (c *Config) pagesBeyond(pool int, p *windows.Pool) int {
	return int(int64(len(c.memoryOf(pool).Host)/c.ranks())/p.PageBytes()) - c.Pages[pool].Secondary
}

// fixedPages are the pools whose device memory is the host's; nil: none.
func (c *Config) fixedPages() []bool {
	fixed := make([]bool, len(c.Memory))
	some := false
	for p := range c.Memory {
		fixed[p] = c.Memory[p].Tensors != nil
		some = some || fixed[p]
	}
	if !some {
		return nil
	}
	return fixed
}

// validateMemory holds the host's memory to the shape of the pools. Addresses are the
// device's to check.
func (c *Config) validateMemory(pools []windows.Pool) error {
	if c.Memory == nil {
		return nil
	}
	if len(c.Memory) != len(pools) {
		return refusals.New(messages.ErrConfigInvalid, "memory for %d pools, the model has %d",
			len(c.Memory), len(pools))
	}
	if len(c.Pages) != len(pools) {
		return nil // which validatePages says
	}
	var problems []error
	for i, m := range c.Memory {
		if m.Shared && (m.Tensors != nil || m.Host != nil) {
			problems = append(problems, refusals.New(messages.ErrConfigInvalid,
				"memory of pool %s: shared, and the host's own, which only the host can share", pools[i].Name))
		}
		problems = append(problems, c.validateTensors(m.Tensors, &pools[i]))
		if want := int64(c.Pages[i].Secondary) * pools[i].PageBytes() * int64(c.ranks()); m.Host != nil &&
			int64(len(m.Host)) < want {
			problems = append(problems, refusals.New(messages.ErrConfigInvalid,
				"memory of pool %s: %d bytes of host memory for pages of %d bytes", pools[i].Name, len(m.Host),
				want))
		}
	}
	return windows.Join(problems...)
}

// validateTensors holds the host's tensors to the size of a page, on each rank.
func (c *Config) validateTensors(tensors []gpu.Tensor, pool *windows.Pool) error {
	if tensors == nil {
		return nil
	}
	for rank := range c.ranks() {
		bytes := int64(0)
		for _, t := range tensors {
			if t.Rank == rank {
				bytes += t.PageBytes
			}
		}
		if want := pool.PageBytes(); bytes != want {
			return refusals.New(messages.ErrConfigInvalid,
				"memory of pool %s: its tensors hold %d bytes of each page, which has %d%s", pool.Name, bytes,
				want, c.onRank(rank))
		}
	}
	return nil
}

// ranks is how many devices the engine's device stands for.
func (c *Config) ranks() int { return gpu.Ranks(c.Device) }

// onRank names a rank where there are several.
func (c *Config) onRank(rank int) string {
	if c.ranks() == 1 {
		return ""
	}
	return fmt.Sprintf(", on rank %d", rank)
}

// movable refuses an automatic rebalance where it could move nothing.
func (c *Config) movable(auto bool, pools []windows.Pool) error {
	if !auto {
		return nil
	}
	for p, fixed := range c.fixedPages() {
		if fixed {
			return refusals.New(messages.ErrConfigInvalid,
				"WithAutoRebalance: the device memory of pool %s is the host's", pools[p].Name)
		}
	}
	for p := range c.Memory {
		if c.Memory[p].Shared {
			return refusals.New(messages.ErrConfigInvalid,
				"WithAutoRebalance: other processes may have mapped pool %s", pools[p].Name)
		}
	}
	return nil
}
