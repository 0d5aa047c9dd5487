package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// overview serves ReadOverview: the tree, the pools and the offloader describe a bounded
// part of what they hold.
//
//	start ─▶ asking ─▶ answer
//
// The parts that have a limit of 0 are not asked, so that a page that polls one part costs
// the others nothing.
// All are asked between two rounds, so they describe the same moment.
type overview struct {
	*shared
	stages[overview]
	request *inspect.ReadOverview

	// New records for each request: an overview is rare, and its lists go to the host.
	tree *protocol.TopNodes
	host *protocol.SampleHost
}

// start asks who has to be asked.
//
// The limits are bounded by inspect.MaxOverview because the answer is made inside a round:
// every other request waits for it.
func (v *overview) start(request any) {
	v.request = request.(*inspect.ReadOverview)
	r := v.request
	n := r.Limits
	r.Err, r.Overview = nil, inspect.Overview{}
	if n.Pages < 0 || n.Pages > inspect.MaxOverview || n.Nodes < 0 || n.Nodes > inspect.MaxOverview {
		r.Err = refusals.New(messages.ErrBadRequest,
			"an overview of %d pages and %d nodes: neither may be above %d or negative", n.Pages, n.Nodes,
			inspect.MaxOverview)
	}
	if r.Err != nil || n.Pages == 0 && n.Nodes == 0 {
		v.kernel.reply()
		return
	}
	v.tree, v.host = nil, nil
	v.wait(v, "overview: asking", (*overview).end)
	header := protocol.Header{Epoch: v.kernel.epoch}
	if n.Nodes > 0 {
		v.tree = &protocol.TopNodes{Header: header, Limit: n.Nodes}
		v.kernel.toTree(v.tree)
	}
	if n.Pages == 0 {
		return
	}
	v.out.pools.reset()
	v.host = &protocol.SampleHost{Header: header, Pages: n.Pages}
	v.kernel.toOffloader(v.host)
	for p := range v.config.Pools {
		v.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect,
			Pages: protocol.SampledPages(nil, v.counts.device[p].Total, n.Pages)})
	}
	v.out.pools.send()
}

// end answers what all have said.
func (v *overview) end() {
	o := &v.request.Overview
	if v.tree != nil {
		o.Nodes, o.Counted, o.Complete = v.tree.Nodes, v.tree.Counted, v.tree.Complete
	}
	if v.host != nil {
		v.out.pools.received()
		for p := range v.config.Pools {
			o.Pools = append(o.Pools, inspect.PoolOverview{Primary: v.device(v.out.pools.op(p, 0)),
				Secondary: v.secondary(p)})
		}
	}
	v.kernel.reply()
}

// device describes the pages of one pool.
//
// A page that sequences hold and that also caches a block is reported as used: what an
// operator sees is whether it could be taken.
func (v *overview) device(op *protocol.PoolOp) []inspect.PageSample {
	list := make([]inspect.PageSample, 0, len(op.Pages))
	for i, page := range op.Pages {
		share := &op.Shares[i]
		s := inspect.PageSample{Page: page, Priority: share.Priority, Age: v.age(share.Use)}
		switch {
		case share.References > 0 || share.Pins > 0:
			s.State = inspect.PageUsed
		case share.Stored:
			s.State = inspect.PageCached
		}
		list = append(list, s)
	}
	return list
}

// secondary describes the host pages of one pool.
//
// The offloader reports the raw use in Age, because only the coordinator knows the latest
// use and so how long ago it was.
func (v *overview) secondary(p int) []inspect.PageSample {
	list := v.host.Samples[p]
	for i := range list {
		list[i].Age = v.age(protocol.Use(list[i].Age))
	}
	return list
}

// age says how many uses ago a use was; 0 for contents that were never used.
func (v *overview) age(u protocol.Use) uint64 {
	if u == 0 {
		return 0
	}
	return v.uses.last.Moment() - u.Moment()
}
