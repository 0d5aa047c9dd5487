package actors

import (
	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// hostPages divides the host pages of each pool by what they are for. Those that the engine has
// got from Cache.HostCacheSize are that in all, so the counts of the contents become smaller.
// Where the host has counted the contents (Config.Pages), or there are none, the others come
// beside them, in host memory of the host's as many as fit.
func (c *Config) hostPages(known *coordinator.Config, store *StoreConfig) []windows.HostPages {
	pages := make([]windows.HostPages, len(known.Pools))
	for i, save := range savePages(store, c, known) {
		n := &known.Counts[i]
		if c.Pages == nil && n.Secondary > 0 {
			pages[i] = windows.DivideHost(*n, known.Ahead, save)
			n.Secondary = pages[i].Contents
			continue
		}
		pages[i] = windows.HostPages{Contents: n.Secondary, Save: save}
		if known.Ahead {
			pages[i].Ahead = windows.AheadPages(*n)
		}
		if c.memoryOf(i).Host != nil {
			pages[i].Ahead = min(pages[i].Ahead, c.pagesBeyond(i, &known.Pools[i])-save)
		}
	}
	return pages
}

// savePages is how many host pages of each pool the store asks for, for bytes on their way to it:
// each pool's share of SaveBytes is that of its pages on the device, of which a small pool takes
// no more than maxSavePages. Host memory of the host's has as many of them as fit.
func savePages(c *StoreConfig, engine *Config, known *coordinator.Config) []int {
	pages := make([]int, len(known.Pools))
	if c == nil {
		return pages
	}
	total := int64(0)
	for i, p := range known.Pools {
		total += p.PageBytes() * int64(known.Counts[i].Primary)
	}
	for i, p := range known.Pools {
		share := float64(p.PageBytes()*int64(known.Counts[i].Primary)) / float64(total)
		// A page is one share on each rank.
		bytes := int(p.PageBytes()) * engine.ranks()
		pages[i] = min(int(share*float64(c.SaveBytes))/bytes, maxSavePages(known.Counts[i]))
		if engine.memoryOf(i).Host != nil {
			pages[i] = min(pages[i], engine.pagesBeyond(i, &p))
		}
	}
	return pages
}

// maxSavePages is how many save pages a pool has at most. A round saves no more pages than the
// pool has; but rounds do not wait for the store, so a pool of a few pages needs room for
// several: 64 are a prompt of 4,096 tokens with a checkpoint in each block of 64.
func maxSavePages(c windows.PageCounts) int { return max(64, c.Primary+c.Secondary) }

// measure is the memory of so many pages, on all ranks.
func (c *Config) measure(known *coordinator.Config, host []windows.HostPages) inspect.MemoryStats {
	m := inspect.MemoryStats{Ranks: c.ranks(), MetadataBytes: windows.MetadataBytes(known.Counts,
		known.TokensPerBlock)}
	for i, p := range known.Pools {
		page := p.PageBytes() * int64(m.Ranks)
		m.DeviceBytes += page * int64(known.Counts[i].Primary)
		m.ContentBytes += page * int64(host[i].Contents)
		m.AheadBytes += page * int64(host[i].Ahead)
		m.SaveBytes += page * int64(host[i].Save)
	}
	return m
}

// afford refuses host pages that the machine has no memory for. Those of host memory of the
// host's are there.
func (c *Config) afford(
	known *coordinator.Config, host []windows.HostPages, m *inspect.MemoryStats,
) error {
	need := m.HostBytes()
	for i, p := range known.Pools {
		if c.memoryOf(i).Host != nil {
			need -= p.PageBytes() * int64(m.Ranks) * int64(host[i].Total())
		}
	}
	if need == 0 {
		return nil
	}
	memory, err := c.Device.Memory()
	if err != nil || memory.HostFree == 0 || need <= memory.HostFree {
		return err
	}
	return refusals.New(messages.ErrConfigInvalid,
		"host pages take %d bytes on %d ranks: %d for contents, %d for copies ahead of demand, "+
			"%d on their way to a store; %d are free", need, m.Ranks, m.ContentBytes, m.AheadBytes,
		m.SaveBytes, memory.HostFree)
}
