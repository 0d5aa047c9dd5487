package devicetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// Shape of a random program.
type Shape struct {
	Seed  uint64
	Steps int
	// DropOneIn leaves out one wait in so many, which may or may not make the
	// program wrong: Hazards tells. 0: none.
	DropOneIn int
}

const (
	programPages   = 6 // in each tier
	programPage    = 256
	programGrain   = 64 // ranges are multiples of it
	programStreams = 3
)

// Program is random work on one pool: batches of copies on three streams, each
// behind the waits that its accesses need. It begins with all pages written.
type Program struct {
	steps []step
	model [2][programPages][]byte // by tier: the bytes after all steps
}

// step is one batch. Its waits are earlier steps; sync is a step that the host
// syncs on before, -1 for none.
type step struct {
	stream int
	copies []gpu.Copy
	waits  []int
	sync   int
}

// Generate makes a program. Equal shapes make equal programs.
func Generate(s Shape) *Program {
	rng := rand.New(rand.NewPCG(s.Seed, 7))
	p := &Program{}
	first := step{stream: rng.IntN(programStreams), sync: -1}
	for tier := range p.model {
		for i := range p.model[tier] {
			p.model[tier][i] = make([]byte, programPage)
		}
	}
	for i := range programPages {
		fillPattern(p.model[messages.Secondary][i], i)
		first.copies = append(first.copies, gpu.Copy{
			Src: slot(messages.Secondary, i), Dst: slot(messages.Primary, i), Bytes: programPage})
	}
	p.add(first)
	for len(p.steps) < s.Steps {
		st := step{stream: rng.IntN(programStreams), copies: randomCopies(rng), sync: -1}
		if rng.IntN(12) == 0 {
			st.sync = rng.IntN(len(p.steps))
		}
		for _, w := range p.needs(&st) {
			if s.DropOneIn == 0 || rng.IntN(s.DropOneIn) != 0 {
				st.waits = append(st.waits, w)
			}
		}
		p.add(st)
	}
	return p
}

// slot names a page of the program's pool, whose number is set when it runs.
func slot(t messages.Tier, page int) gpu.Slot {
	return gpu.Slot{Tier: t, Page: messages.PageID(page)}
}

// fillPattern writes what a host page holds at the beginning.
func fillPattern(b []byte, page int) {
	for i := range b {
		b[i] = pattern(byte(page*17), i)
	}
}

// randomCopies makes a batch of one to four copies that do not disturb one another.
func randomCopies(rng *rand.Rand) []gpu.Copy {
	var list []gpu.Copy
	var overlaps gpu.Overlaps
	for range 1 + rng.IntN(4) {
		c := gpu.Copy{
			Src:   slot(messages.Tier(rng.IntN(2)), rng.IntN(programPages)),
			Dst:   slot(messages.Tier(rng.IntN(2)), rng.IntN(programPages)),
			Bytes: programPage,
		}
		if rng.IntN(2) == 0 {
			c.Bytes = programGrain * int64(1+rng.IntN(3))
			c.SrcOffset = programGrain * rng.Int64N((programPage-c.Bytes)/programGrain+1)
			c.DstOffset = programGrain * rng.Int64N((programPage-c.Bytes)/programGrain+1)
		} else if n := 1 + rng.IntN(3); n > 1 && int(max(c.Src.Page, c.Dst.Page))+n <= programPages {
			c.Pages, c.Bytes = int32(n), int64(n)*programPage
		}
		if _, ok := c.Direction(); !ok || overlaps.Find(append(list, c)) != nil {
			continue
		}
		list = append(list, c)
	}
	return list
}

// add appends a step and does it to the model, reads first.
func (p *Program) add(s step) {
	p.steps = append(p.steps, s)
	var moved [][]byte
	pages := singly(s.copies)
	for _, c := range pages {
		moved = append(moved,
			bytes.Clone(p.model[c.Src.Tier][c.Src.Page][c.SrcOffset:c.SrcOffset+c.Bytes]))
	}
	for i, c := range pages {
		copy(p.model[c.Dst.Tier][c.Dst.Page][c.DstOffset:], moved[i])
	}
}

// needs lists by stream the last earlier step that the new one must come after.
func (p *Program) needs(s *step) []int {
	last := [programStreams]int{-1, -1, -1}
	for i := range p.steps {
		if p.steps[i].stream != s.stream && conflicts(&p.steps[i], s) {
			last[p.steps[i].stream] = i
		}
	}
	var waits []int
	for _, i := range last {
		if i >= 0 {
			waits = append(waits, i)
		}
	}
	return waits
}

// singly breaks runs up into pages.
func singly(list []gpu.Copy) (pages []gpu.Copy) {
	for i := range list {
		pages = slices.AppendSeq(pages, list[i].Each)
	}
	return pages
}

// conflicts tells whether two steps touch the same bytes, one of them writing.
func conflicts(a, b *step) bool {
	for _, x := range singly(a.copies) {
		for _, y := range singly(b.copies) {
			if meets(dst(x), src(y)) || meets(dst(x), dst(y)) || meets(src(x), dst(y)) {
				return true
			}
		}
	}
	return false
}

// src is the read of a copy.
func src(c gpu.Copy) gpu.Access {
	return gpu.Access{Slot: c.Src, Offset: c.SrcOffset, Bytes: c.Bytes}
}

// dst is the write of a copy.
func dst(c gpu.Copy) gpu.Access {
	return gpu.Access{Slot: c.Dst, Offset: c.DstOffset, Bytes: c.Bytes}
}

// meets tells whether two accesses share bytes.
func meets(a, b gpu.Access) bool {
	return a.Slot == b.Slot && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes
}

// Hazards counts the pairs of steps that touch the same bytes, one of them
// writing, and that nothing orders: no path of stream order, waits and syncs
// leads from one to the other.
func (p *Program) Hazards() int {
	n := len(p.steps)
	after := make([][]bool, n) // after[i][j]: i comes after j
	var synced []int
	lastOn := [programStreams]int{-1, -1, -1}
	count := 0
	for i := range p.steps {
		s := &p.steps[i]
		after[i] = make([]bool, n)
		come := func(j int) {
			if j < 0 {
				return
			}
			after[i][j] = true
			for k, yes := range after[j] {
				after[i][k] = after[i][k] || yes
			}
		}
		come(lastOn[s.stream])
		for _, w := range s.waits {
			come(w)
		}
		if s.sync >= 0 {
			synced = append(synced, s.sync)
		}
		for _, j := range synced {
			come(j)
		}
		lastOn[s.stream] = i
		for j := range i {
			if !after[i][j] && conflicts(&p.steps[j], s) {
				count++
			}
		}
	}
	return count
}

// Run carries the program out on a device and demands the bytes of the model
// on all pages.
func (p *Program) Run(t testing.TB, dev gpu.Device) {
	t.Helper()
	r := p.start(t, dev)
	for _, s := range r.s {
		fence, err := dev.Fence(s)
		require.NoError(t, err)
		r.sync(fence)
	}
	for i := range programPages {
		r.equal(i, p.model[messages.Secondary][i], "host page %d", i)
	}
	for i := range programPages {
		r.sync(r.submit(r.s[0], nil, r.whole(r.device(i), r.host(0))))
		r.equal(0, p.model[messages.Primary][i], "device page %d", i)
	}
}

// equal demands the bytes of the model in a host page.
func (r *rig) equal(page int, model []byte, format string, args ...any) {
	r.t.Helper()
	for rank, share := range r.read(page) {
		// A program only copies, so what tells ranks apart is in every byte still.
		for i := range share {
			share[i] ^= of(rank)
		}
		require.Equal(r.t, model, share, "rank %d, %s", rank, fmt.Sprintf(format, args...))
	}
}

// Start submits the whole program and does not wait for its end.
func (p *Program) Start(t testing.TB, dev gpu.Device) {
	t.Helper()
	p.start(t, dev)
}

// start submits all steps.
func (p *Program) start(t testing.TB, dev gpu.Device) *rig {
	t.Helper()
	r := newRig(t, dev, gpu.PoolSpec{
		Name: "program", PageBytes: programPage, DevicePages: programPages, HostPages: programPages})
	for i := range programPages {
		r.write(i, byte(i*17))
	}
	tickets := make([]gpu.Ticket, len(p.steps))
	for i, s := range p.steps {
		if s.sync >= 0 {
			require.NoError(t, dev.Sync(context.Background(), tickets[s.sync]))
		}
		b := gpu.Batch{Label: fmt.Sprintf("step %d", i)}
		for _, w := range s.waits {
			b.Waits = append(b.Waits, tickets[w])
		}
		for _, c := range s.copies {
			c.Src.Pool, c.Dst.Pool = r.pool, r.pool
			b.Copies = append(b.Copies, c)
		}
		var err error
		tickets[i], err = dev.Submit(r.s[s.stream], &b)
		require.NoError(t, err)
	}
	return r
}
