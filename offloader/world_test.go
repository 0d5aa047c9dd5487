package offloader

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// devicePage is a page of the world's device: it caches a block or is free.
type devicePage struct {
	block    protocol.BlockID // NoBlock: free
	priority messages.Priority
	use      protocol.Use
	depth    int32
}

// worldPool is one pool of the world.
type worldPool struct {
	host    oracle
	device  []devicePage
	value   map[protocol.BlockID]int  // the contents that a block names
	aheadOf map[protocol.BlockID]bool // blocks that may have an ahead copy
	unused  []protocol.BlockID        // ids, reused soonest first
	yields  []protocol.BlockID        // the device has written these again
}

// kernel is work of the world's host that the offloader has not heard of.
type kernel struct {
	ticket      messages.Ticket
	read, write [][]messages.PageID
}

// world is a small engine around the offloader: it makes Moves as a
// coordinator would, runs the copies on the machine and launches kernels that
// wait for what Ready says. pick(n) chooses in [0, n).
type world struct {
	o       *Offloader
	cfg     Config
	m       *machine
	pools   []*worldPool
	pick    func(n int) int
	faults  int // one copy in so many fails; 0: none
	serial  int
	use     protocol.Use
	stamp   uint64
	kernels []kernel
	move    protocol.Move
	fresh   [][]messages.PageID // pages that kernels write in this step
	// host memory is nearly always full, and most victims displace something
	crowded bool
}

const worldBlocks = 40

func worldConfig() Config {
	regions := []windows.Region{{Runs: 4, TokenBytes: 4}}
	return Config{
		Pools: []PoolConfig{
			{Name: "w8h1", HostPages: 5, PageBytes: 64, TokensPerBlock: 4, Regions: regions},
			{Name: "wfullh1", HostPages: 3, PageBytes: 64, TokensPerBlock: 4, Regions: regions},
		},
		MinPriority: 30,
		SliceBytes:  3 * 64,
	}
}

func newWorld(cfg Config, device []int, pick func(n int) int) *world {
	w := &world{cfg: cfg, m: newMachine(), pick: pick, fresh: make([][]messages.PageID,
		len(cfg.Pools))}
	for i, c := range cfg.Pools {
		p := &worldPool{
			host: oracle{total: c.HostPages, floor: cfg.MinPriority, quotas: cfg.Quotas,
				forecast: c.Policy == evict.Forecast},
			value:   map[protocol.BlockID]int{},
			aheadOf: map[protocol.BlockID]bool{},
		}
		for range device[i] {
			p.device = append(p.device, devicePage{block: protocol.NoBlock})
		}
		for b := range protocol.BlockID(max(worldBlocks, 4*(device[i]+c.HostPages))) {
			p.unused = append(p.unused, b)
		}
		w.pools = append(w.pools, p)
	}
	w.o = New(cfg)
	return w
}

func (w *world) chance(n int) bool { return w.pick(n) == 0 }

// of is one number for most worlds, and another one for crowded ones, where fewer contents leave
// host memory by themselves.
func (w *world) of(most, crowded int) int {
	if w.crowded {
		return crowded
	}
	return most
}

func (w *world) priority() messages.Priority {
	if w.crowded && !w.chance(8) {
		return messages.DefaultPriority
	}
	return []messages.Priority{10, 30, 35, 35, 80}[w.pick(5)]
}

// step makes one Move, runs it and compares everything.
func (w *world) step() error {
	w.stamp++
	w.use++
	w.move = protocol.Move{Stamp: w.stamp, Pools: make([]protocol.PoolMove, len(w.pools)),
		Queries: make([]protocol.WaitQuery, 1)}
	r := &w.move.Queries[0]
	r.Read, r.Write = make([][]messages.PageID, len(w.pools)), make([][]messages.PageID, len(w.pools))
	for i := range w.pools {
		w.fresh[i] = nil
		w.effects(messages.PoolID(i))
		w.pins(messages.PoolID(i))
		w.traffic(messages.PoolID(i))
	}
	for _, k := range w.kernels {
		for i := range w.pools {
			w.move.Marks = append(w.move.Marks,
				protocol.Mark{Pool: messages.PoolID(i), Pages: k.read[i], Ticket: k.ticket},
				protocol.Mark{Pool: messages.PoolID(i), Pages: k.write[i], Write: true, Ticket: k.ticket})
		}
	}
	w.kernels = w.kernels[:0]
	w.o.Begin(&w.move)
	if err := w.run(); err != nil {
		return err
	}
	w.o.Finish()
	if err := oneEach(r.Tickets); err != nil {
		return fmt.Errorf("ready: %w", err)
	}
	for i := range w.pools {
		if err := w.follow(messages.PoolID(i)); err != nil {
			return err
		}
	}
	w.launch()
	return w.compare()
}

// run carries submissions to the machine.
func (w *world) run() error {
	for s := w.o.Next(); s != nil; s = w.o.Next() {
		pageBytes := w.cfg.Pools[0].PageBytes
		if err := legal(s, w.cfg.SliceBytes, pageBytes); err != nil {
			return err
		}
		failed := -1
		pages, of := singly(s.Copies)
		n := len(pages)
		if w.faults > 0 && w.chance(w.faults) {
			n = w.pick(n)
			failed = of[n] // of a run some pages may be queued
		}
		w.o.Submitted(w.m.submit(s, n, pageBytes), failed)
	}
	return nil
}

// effects draws effects of the tree on host memory.
func (w *world) effects(pool messages.PoolID) {
	p := w.pools[pool]
	add := func(kind protocol.EffectKind, b protocol.BlockID, priority messages.Priority) {
		w.move.Effects = append(w.move.Effects, protocol.Effect{Kind: kind, Pool: pool,
			Blocks: []protocol.BlockID{b}, Priority: priority})
	}
	for _, b := range p.yields {
		if e := p.host.find(b); e != nil {
			add(protocol.HostYield, b, 0)
			e.clean, e.pins, e.stamp = true, 0, w.stamp
		}
	}
	p.yields = nil
	for _, b := range p.host.soles() {
		switch w.pick(w.of(10, 50)) {
		case 0:
			add(protocol.HostForget, b, 0)
			p.forget(b)
		case 1:
			e := p.host.find(b)
			e.priority = w.priority()
			add(protocol.HostReprioritize, b, e.priority)
		}
	}
	for i := range p.device {
		if d := &p.device[i]; d.block != protocol.NoBlock && w.chance(w.of(12, 60)) {
			add(protocol.HostForget, d.block, 0)
			p.forget(d.block)
			d.block = protocol.NoBlock
		}
	}
}

// forget makes a block unknown and its id free for others.
func (p *worldPool) forget(b protocol.BlockID) {
	p.host.remove(b)
	delete(p.aheadOf, b)
	delete(p.value, b)
	p.unused = append([]protocol.BlockID{b}, p.unused...)
}

// pins begins and ends pins of host contents.
func (w *world) pins(pool messages.PoolID) {
	p, pm := w.pools[pool], &w.move.Pools[pool]
	for _, b := range p.host.soles() {
		e := p.host.find(b)
		switch {
		case e.pins < 2 && w.chance(w.of(10, 30)):
			pm.Pins = append(pm.Pins, b)
			e.pins++
		case e.pins > 0 && w.chance(2):
			w.use++
			pm.Unpins = append(pm.Unpins, protocol.Touch{Block: b, Use: w.use})
			e.pins--
			e.use, e.last = w.use, max(e.last, p.host.now)
		case w.chance(w.of(10, 40)):
			w.use++
			pm.Touches = append(pm.Touches, protocol.Touch{Block: b, Use: w.use})
			e.use, e.last = w.use, max(e.last, p.host.now)
		}
	}
}

// traffic evicts pages and gives the free ones to onboards, copies and kernels.
func (w *world) traffic(pool messages.PoolID) {
	p, pm := w.pools[pool], &w.move.Pools[pool]
	var open, cached []messages.PageID
	for i := range p.device {
		page, d := messages.PageID(i), &p.device[i]
		switch {
		case d.block == protocol.NoBlock:
			open = append(open, page)
		case w.chance(3):
			pm.Victims = append(pm.Victims, protocol.Victim{
				Page: page, Block: d.block, Depth: d.depth, Priority: d.priority, Use: d.use,
				Tenant: p.host.tenant(d.block, page),
			})
			open = append(open, page)
		default:
			cached = append(cached, page)
		}
	}
	for i := len(pm.Victims) - 1; i > 0; i-- {
		j := w.pick(i + 1)
		pm.Victims[i], pm.Victims[j] = pm.Victims[j], pm.Victims[i]
	}
	w.pieces(pool)
	take := func() messages.PageID {
		i := w.pick(len(open))
		page := open[i]
		open = slices.Delete(open, i, i+1)
		return page
	}
	w.copies(pool, cached, &open, take)
	w.onboards(pool, &open, take)
	for len(open) > 0 && w.pick(w.of(2, 30)) > 0 {
		w.fresh[pool] = append(w.fresh[pool], take())
	}
	r := &w.move.Queries[0]
	r.Write[pool] = append(r.Write[pool], w.fresh[pool]...)
	for _, page := range cached {
		if w.chance(2) {
			r.Read[pool] = append(r.Read[pool], page, messages.NoPage)
		}
	}
}

func (w *world) onboards(
	pool messages.PoolID, open *[]messages.PageID, take func() messages.PageID,
) {
	p, pm, r := w.pools[pool], &w.move.Pools[pool], &w.move.Queries[0]
	for _, b := range p.host.soles() {
		if len(*open) == 0 || !w.chance(w.of(4, 20)) {
			continue
		}
		on := protocol.Onboard{Block: b, To: take(), Free: w.chance(4)}
		pm.Onboards = append(pm.Onboards, on)
		r.Read[pool] = append(r.Read[pool], on.To)
		p.host.find(b).protected = true
	}
}

// copies reads cached pages, victims and host memory, and now and then the
// page that the copy before has written. Pages that were read may be free by then.
func (w *world) copies(
	pool messages.PoolID, cached []messages.PageID, open *[]messages.PageID,
	take func() messages.PageID,
) {
	p, pm, r := w.pools[pool], &w.move.Pools[pool], &w.move.Queries[0]
	for len(*open) > 0 && w.chance(w.of(2, 3)) {
		c := protocol.PageCopy{To: take(), Block: protocol.NoBlock, Tokens: 1 + w.pick(4)}
		soles := p.host.soles()
		switch kind := w.pick(5); {
		case kind == 4:
			c.Zero = true
		case kind == 0 && len(soles) > 0:
			c.Block = soles[w.pick(len(soles))]
			p.host.find(c.Block).protected = true
			c.From = protocol.OnHost(w.o.hosts[pool].find(c.Block))
		case kind == 1 && len(pm.Copies) > 0:
			c.From = protocol.OnDevice(pm.Copies[len(pm.Copies)-1].To)
		case kind == 2 && len(*open) > 0 && precedes(pm.Victims, p.device[(*open)[0]].block):
			c.From = protocol.OnDevice((*open)[0]) // a victim, which a later copy or onboard may write
		case len(cached) > 0:
			c.From = protocol.OnDevice(cached[w.pick(len(cached))])
		default:
			continue
		}
		pm.Copies = append(pm.Copies, c)
		if w.chance(2) {
			r.Write[pool] = append(r.Write[pool], c.To)
		} else {
			r.Read[pool] = append(r.Read[pool], c.To)
		}
	}
}

// follow applies what the Move answered for one pool.
func (w *world) follow(pool messages.PoolID) error {
	p, pm := w.pools[pool], &w.move.Pools[pool]
	for _, v := range pm.Victims {
		p.device[v.Page].block = protocol.NoBlock
	}
	if err := p.host.compareOutcomes(pm, p.aheadOf); err != nil {
		return fmt.Errorf("pool %d: %w", pool, err)
	}
	for i, v := range pm.Victims {
		for _, b := range []protocol.BlockID{v.Block, pm.Outcomes[i].Displaced} {
			if b != protocol.NoBlock && p.host.find(b) == nil && p.value[b] != 0 {
				p.forget(b)
			}
		}
	}
	if err := w.failures(pm); err != nil {
		return fmt.Errorf("pool %d: %w", pool, err)
	}
	for _, on := range pm.Onboards {
		if on.Failed {
			continue
		}
		e := p.host.find(on.Block)
		w.use++
		p.device[on.To] = devicePage{on.Block, e.priority, w.use, e.depth}
		e.clean, e.pins, e.stamp = true, 0, w.stamp
		if on.Free {
			p.host.remove(on.Block)
		}
	}
	for _, e := range p.host.list {
		e.protected = false
	}
	return nil
}

// failures holds the Failed flags against each other: a copy from a page that
// was to be written by a copy that failed has failed too, and nothing fails on a
// device without faults.
func (w *world) failures(pm *protocol.PoolMove) error {
	for j, c := range pm.Copies {
		if c.Failed && w.faults == 0 {
			return fmt.Errorf("copy %d failed on a sound device", j)
		}
		for i := j - 1; i >= 0; i-- {
			if protocol.OnDevice(pm.Copies[i].To) == c.From && !c.Zero {
				if pm.Copies[i].Failed && !c.Failed {
					return fmt.Errorf("copy %d is from copy %d, which failed", j, i)
				}
				break
			}
		}
	}
	return nil
}

// launch runs one kernel that reads and writes what Ready was asked for.
func (w *world) launch() {
	r := &w.move.Queries[0]
	k := kernel{read: r.Read, write: r.Write}
	var reads, writes []Slot
	for i := range w.pools {
		for _, page := range r.Read[i] {
			if page != messages.NoPage {
				reads = append(reads, Slot{messages.PoolID(i), messages.Primary, page})
			}
		}
		for _, page := range r.Write[i] {
			s := Slot{messages.PoolID(i), messages.Primary, page}
			writes = append(writes, s)
			w.m.contents[s] = 0
		}
		for _, page := range w.fresh[i] {
			w.store(messages.PoolID(i), page)
		}
	}
	if len(reads)+len(writes) == 0 {
		return
	}
	stream := messages.StreamID(laneStreams + 1 + w.pick(allStreams-laneStreams))
	k.ticket = w.m.operate(stream, "kernel", r.Tickets, reads, writes)
	w.kernels = append(w.kernels, k)
}

// store makes a page that a kernel has written cache a block: a new one, or
// one that host memory alone holds.
func (w *world) store(pool messages.PoolID, page messages.PageID) {
	p, d := w.pools[pool], &w.pools[pool].device[page]
	soles := p.host.soles()
	w.serial++ // all pages of a step have one use and differ in depth
	if len(soles) > 0 && w.chance(4) {
		b := soles[w.pick(len(soles))]
		if !slices.Contains(p.yields, b) {
			e := p.host.find(b)
			*d = devicePage{b, e.priority, w.use, e.depth}
			p.yields = append(p.yields, b)
			w.m.contents[Slot{pool, messages.Primary, page}] = p.value[b]
			return
		}
	}
	b := p.unused[0]
	p.unused = p.unused[1:]
	p.value[b] = w.serial
	*d = devicePage{b, w.priority(), w.use, int32(w.serial ^ 5)}
	w.m.contents[Slot{pool, messages.Primary, page}] = w.serial
}

// aheadOfDemand copies cached pages that no unknown kernel writes.
func (w *world) aheadOfDemand() error {
	pool := messages.PoolID(w.pick(len(w.pools)))
	p := w.pools[pool]
	var candidates []protocol.Victim
	for i, d := range p.device {
		page := messages.PageID(i)
		busy := slices.ContainsFunc(w.kernels,
			func(k kernel) bool { return slices.Contains(k.write[pool], page) })
		if d.block != protocol.NoBlock && !busy && w.chance(2) {
			candidates = append(candidates, protocol.Victim{
				Page: page, Block: d.block, Depth: d.depth, Priority: d.priority, Use: d.use,
				Tenant: p.host.tenant(d.block, page),
			})
		}
	}
	n := w.o.PlanAhead(pool, &protocol.EvictionCandidates{Victims: candidates,
		Evictable: w.pick(len(candidates) + 1)})
	for _, it := range w.o.items[:n] {
		p.aheadOf[candidates[it.index].Block] = true
	}
	if err := w.run(); err != nil {
		return err
	}
	w.o.Finish()
	return w.compare()
}

// compare holds everything that can be seen against the oracle.
func (w *world) compare() error {
	if len(w.m.hazards) > 0 {
		return fmt.Errorf("hazard: %s", w.m.hazards[0])
	}
	for i, p := range w.pools {
		pool := messages.PoolID(i)
		if got, want := w.o.Counts(pool), p.host.counts(); got != want {
			return fmt.Errorf("pool %d: counts %+v, oracle %+v", i, got, want)
		}
		for t := range p.host.quotas {
			if a, n := w.o.hosts[pool].order.Account(protocol.Tenant(t)),
				p.host.pages(protocol.Tenant(t)); a.Used+a.Cached != n {
				return fmt.Errorf("pool %d: tenant %d has %+v, oracle %d", i, t, a, n)
			}
		}
		for _, e := range p.host.list {
			page := w.o.hosts[i].find(e.block)
			if page == messages.NoPage || e.clean != (w.o.hosts[i].pages[page].state != sole) {
				return fmt.Errorf("pool %d: block %d is on host page %d, clean %t", i, e.block, page, e.clean)
			}
			if got := w.m.contents[Slot{pool, messages.Secondary, page}]; got != p.value[e.block] {
				return fmt.Errorf("pool %d: host page %d holds %d, block %d is %d", i, page, got, e.block,
					p.value[e.block])
			}
		}
		for page, d := range p.device {
			if got := w.m.contents[Slot{pool, messages.Primary,
				messages.PageID(page)}]; d.block != protocol.NoBlock && got != p.value[d.block] {
				return fmt.Errorf("pool %d: device page %d holds %d, block %d is %d", i, page, got, d.block,
					p.value[d.block])
			}
		}
	}
	return w.o.Check()
}
