package check

import (
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// access is one side of an ordering question: operation seq of an actor.
type access struct {
	// what and label serve reports only; actor and seq decide.
	actor actorID
	what  work
	seq   uint64 // 0: no access
	label string
}

// work is what an operation does, for reports.
type work uint8

// The kinds. A release of memory counts as a write by the host: Resize and DestroyPool take
// pages away, and whatever still uses them then has no page.
const (
	copying work = iota
	computing
	hosting
	unmapping
)

// String names the kind of work as reports do.
func (w work) String() string {
	return [...]string{"copy", "kernel", "host access", "release of memory"}[w]
}

// same tells whether two accesses are of one operation.
func (a access) same(b access) bool { return a.actor == b.actor && a.seq == b.seq }

// part is a range of a page with one history.
type part struct {
	// The parts of a page cover [0, page size) without gaps: hi of one is lo of the next.
	lo, hi int64
	write  access
	blank  bool     // the write was a copy of what nothing had written
	reads  []access // since the write, at most one for each actor: its last
}

// sameHistory tells whether two parts can be one: every later access would be checked
// alike on both.
func (p *part) sameHistory(q *part) bool {
	return p.write.same(q.write) && p.blank == q.blank && slices.EqualFunc(p.reads, q.reads,
		access.same)
}

// page is the history of a slot: parts in order that cover it from end to end,
// none before its first access.
type page struct{ parts []part }

// pool is what the checker knows of a pool.
type pool struct {
	name  string
	bytes int64 // of a page
	// tiers are the histories by tier, then page. A page that has never been used costs an empty
	// slice: histories are made at its first access.
	tiers [2][]page
}

// CreatePool makes a pool whose pages are unwritten.
func (d *Device) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// The spec is for the device to check.
	id, err := d.inner.CreatePool(spec)
	if err != nil {
		return id, err
	}
	// The numbers are the device's, which may have had pools before it was wrapped. Those are
	// unknown here, and accesses to their pages are not checked.
	for len(d.pools) <= int(id) {
		d.pools = append(d.pools, nil)
	}
	d.pools[id] = &pool{name: spec.Name, bytes: spec.PageBytes, tiers: [2][]page{
		messages.Primary:   make([]page, spec.DevicePages),
		messages.Secondary: make([]page, spec.HostPages),
	}}
	return id, nil
}

// Resize changes the number of device pages. Taking memory away is a write by
// the host: all that was done to the pages must have passed, as far as the host
// knows.
func (d *Device) Resize(p gpu.Pool, devicePages int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.inner.Resize(p, devicePages); err != nil {
		return err
	}
	pl := d.pool(p)
	if pl == nil {
		return nil
	}
	// Checked after the device has done it: a device may allow what a host must not rely on.
	d.unmap(gpu.Slot{Pool: p, Tier: messages.Primary, Page: messages.PageID(devicePages)})
	pages := &pl.tiers[messages.Primary]
	for len(*pages) < devicePages {
		*pages = append(*pages, page{})
	}
	clear((*pages)[devicePages:])
	*pages = (*pages)[:devicePages]
	return nil
}

// DestroyPool frees a pool, which is a write to all its pages.
func (d *Device) DestroyPool(p gpu.Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A pool that the device keeps is still in use.
	if err := d.inner.DestroyPool(p); err != nil {
		return err
	}
	if d.pool(p) != nil {
		d.unmap(gpu.Slot{Pool: p, Tier: messages.Primary})
		d.unmap(gpu.Slot{Pool: p, Tier: messages.Secondary})
		d.pools[p] = nil
	}
	return nil
}

// unmap checks that the host may take away the pages from a slot on.
func (d *Device) unmap(from gpu.Slot) {
	d.hostSeq++
	d.now = access{actor: host, seq: d.hostSeq, what: unmapping}
	// The host is the writer: memory that goes must be free of work that the host has not seen end.
	for n := len(d.pools[from.Pool].tiers[from.Tier]); int(from.Page) < n; from.Page++ {
		// Pages that were never accessed are in conflict with nothing.
		if d.page(from).parts != nil {
			d.write(gpu.Access{Slot: from})
		}
	}
}

// pool finds what is known of a pool, nil for one that the checker did not see
// being made.
func (d *Device) pool(p gpu.Pool) *pool {
	if int(p) < 0 || int(p) >= len(d.pools) {
		return nil
	}
	return d.pools[p]
}

// page is the history of a slot; nil when the checker does not know the pool.
func (d *Device) page(s gpu.Slot) *page {
	pl := d.pool(s.Pool)
	if pl == nil || int(s.Page) >= len(pl.tiers[s.Tier]) {
		return nil
	}
	return &pl.tiers[s.Tier][s.Page]
}

// copies does the accesses of a batch: all reads first, they are of one moment.
func (d *Device) copies(list []gpu.Copy) {
	// Destinations are written after all reads, so what a copy carries is noted until then.
	d.blanks = d.blanks[:0]
	n := 0
	for i := range list {
		for c := range list[i].Each {
			if d.carriesNothing(&c) {
				d.blanks = append(d.blanks, n)
			}
			n++
		}
	}
	n = 0
	blanks := d.blanks
	// blanks is in the order of the copies: one comparison for each tells whether it is next.
	for i := range list {
		for c := range list[i].Each {
			blank := len(blanks) > 0 && blanks[0] == n
			if blank {
				blanks = blanks[1:]
			}
			d.overwrite(gpu.Access{Slot: c.Dst, Offset: c.DstOffset, Bytes: c.Bytes}, blank)
			n++
		}
	}
}

// carriesNothing does the read of a copy. A copy on the device may carry what
// nothing has written, tokens that a host has not computed yet: whoever reads
// the copy is reported then.
func (d *Device) carriesNothing(c *gpu.Copy) bool {
	if c.Zero {
		return false
	}
	from := gpu.Access{Slot: c.Src, Offset: c.SrcOffset, Bytes: c.Bytes}
	if d.read(&from) || d.options.IgnoreUnwritten {
		return false
	}
	if c.Src.Tier == messages.Primary && c.Dst.Tier == messages.Primary {
		return true
	}
	d.unwritten(from)
	return false
}

// kernel does the accesses that a kernel declares. What it does not declare cannot
// be checked on a real device, and the simulated one refuses it.
func (d *Device) kernel(k *gpu.Kernel) {
	for _, a := range k.Reads {
		d.use(a)
	}
	for _, a := range k.Writes {
		d.write(a)
	}
}

// use is a read of what something must have written.
func (d *Device) use(a gpu.Access) {
	if !d.read(&a) && !d.options.IgnoreUnwritten {
		d.unwritten(a)
	}
}

// read demands that the last write comes before, and notes the read. It tells
// whether anything of it was written, and resolves the length of a.
func (d *Device) read(a *gpu.Access) (written bool) {
	parts, ok := d.cut(a)
	if !ok {
		return true
	}
	for i := range parts {
		p := &parts[i]
		if p.write.seq != 0 {
			// One written byte is enough: a host reads a page with the tokens that it has so far.
			written = written || !p.blank
			d.demand(*a, conflict{p.write, "reads", "wrote"})
		}
		// Reads are noted even where they are in conflict: the next write must come after them as well.
		p.note(d.now)
	}
	d.page(a.Slot).merge()
	return written
}

// write is an overwrite by something.
func (d *Device) write(a gpu.Access) { d.overwrite(a, false) }

// overwrite demands that the last write and all reads since come before; then
// it is the last write. What a blank one leaves counts as unwritten.
func (d *Device) overwrite(a gpu.Access, blank bool) {
	parts, ok := d.cut(&a)
	if !ok {
		return
	}
	for i := range parts {
		p := &parts[i]
		if p.write.seq != 0 {
			d.demand(a, conflict{p.write, "writes", "wrote"})
		}
		for _, r := range p.reads {
			// A read by the same stream is in order and passes demand.
			d.demand(a, conflict{r, "writes", "read"})
		}
		// A later access that comes after this write comes after those reads, or was reported here.
		p.write, p.blank, p.reads = d.now, blank, p.reads[:0]
	}
	d.page(a.Slot).merge()
}

// note replaces the actor's earlier read by its last.
func (p *part) note(a access) {
	for i := range p.reads {
		if p.reads[i].actor == a.actor {
			p.reads[i] = a
			return
		}
	}
	p.reads = append(p.reads, a)
}

// cut gives the parts that make up an access exactly, and resolves its length
// when it is the whole page.
func (d *Device) cut(a *gpu.Access) (parts []part, ok bool) {
	pg := d.page(a.Slot)
	if pg == nil {
		return nil, false
	}
	size := d.pools[a.Slot.Pool].bytes
	// 0 bytes mean the whole page, whose size the caller need not know.
	if a.Bytes == 0 {
		a.Offset, a.Bytes = 0, size
	}
	if pg.parts == nil {
		pg.parts = append(pg.parts, part{hi: size})
	}
	lo := pg.splitAt(a.Offset)
	hi := pg.splitAt(a.Offset + a.Bytes)
	return pg.parts[lo:hi], true
}

// splitAt makes a part begin at an offset and gives its index.
func (pg *page) splitAt(offset int64) int {
	if offset == 0 {
		return 0
	}
	// The end of the page is no part: the index behind the last one.
	if offset >= pg.parts[len(pg.parts)-1].hi {
		return len(pg.parts)
	}
	// Parts are in order of lo.
	i, found := slices.BinarySearchFunc(pg.parts, offset, func(p part,
		at int64) int {
		return int(p.lo - at)
	})
	if found {
		return i
	}
	// Both halves have the history of the part. The reads are cloned, since they change apart.
	left := &pg.parts[i-1]
	right := part{lo: offset, hi: left.hi, write: left.write, blank: left.blank,
		reads: slices.Clone(left.reads)}
	left.hi = offset
	pg.parts = slices.Insert(pg.parts, i, right)
	return i
}

// merge merges neighbours that have the same history. Partial copies cut a page into many parts;
// without merging the parts would only become more.
func (pg *page) merge() {
	n := 0
	for i := 1; i < len(pg.parts); i++ {
		if pg.parts[n].sameHistory(&pg.parts[i]) {
			pg.parts[n].hi = pg.parts[i].hi
			continue
		}
		n++
		// A swap and not an assignment: the memory of the reads is used again.
		pg.parts[n], pg.parts[i] = pg.parts[i], pg.parts[n]
	}
	pg.parts = pg.parts[:n+1]
}
