package resources

import (
	"fmt"
	"slices"
)

// Decision is what becomes of one resource.
type Decision struct {
	Name     string
	Layer    int
	Resource Resource
	Managed  bool   // in the pages of the engine's pools; else local
	Pool     string // of a managed one
	Reason   string
}

// The rules are those of the document, in its order: references first, then each
// resource by itself. A resource that the document makes local for the manager's sake
// is managed unless the plan is strict; the reason names the rule in both cases, so that
// a reader of the plan sees where the two differ.

// decider holds the references that the others of a collection are compared with.
type decider struct {
	entries []entry
	strict  bool
	kv      *entry // the first PagedKV; nil: none
	ssm     *entry // the first SSM
	conv    *entry // the first CausalConv
	// convReason says why the convolutions do not fit the SSM; "": they do.
	convReason string
}

// decide decides on all resources in order.
func (c *Collection) decide(strict bool) []Decision {
	// Every decision is against references, so they are found before the first one.
	d := decider{strict: strict, entries: c.entries}
	d.references(c.entries)
	out := make([]Decision, len(c.entries))
	for i, e := range c.entries {
		managed, reason := d.decide(&c.entries[i])
		out[i] = Decision{Name: e.name, Layer: e.layer, Resource: e.resource, Managed: managed,
			Reason: reason}
	}
	return out
}

// references finds the first resource of each kind, and whether the shape of the
// convolutions follows from that of the SSM: a convolution runs over the inner channels
// and, for each group, over two vectors of the state's size. If it does not, AutoDeploy
// gives up the reference, so that all convolutions are local. Without an SSM there is
// nothing to compare with, and the convolutions are managed.
func (d *decider) references(entries []entry) {
	d.kv, d.ssm, d.conv = first[PagedKV](entries), first[SSM](entries), first[CausalConv](entries)
	if d.ssm == nil || d.conv == nil {
		return
	}
	// v.ConvDim = HeadDim·NumHeads + 2·groups·DState for some number of groups from 0 on.
	s, v := d.ssm.resource.(SSM), d.conv.resource.(CausalConv)
	if rest := v.ConvDim - s.HeadDim*s.NumHeads; rest < 0 || rest%(2*s.DState) != 0 {
		d.convReason = fmt.Sprintf(
			"conv_dim %d of %s is not head_dim·num_heads + 2·n_groups·d_state = %d + %d·n_groups of %s "+
				"for any integer n_groups ≥ 0",
			v.ConvDim, d.conv.name, s.HeadDim*s.NumHeads, 2*s.DState, d.ssm.name)
	}
}

// decide decides on one resource.
func (d *decider) decide(e *entry) (managed bool, reason string) {
	switch r := e.resource.(type) {
	case PagedKV:
		return d.decideKV(e, r)
	case SSM:
		// Equality of the values is equality of shape and type: they are plain structs.
		return d.decideState(e, d.ssm, d.ssm.resource == e.resource, "")
	case CausalConv:
		return d.decideState(e, d.conv, d.conv.resource == e.resource, d.convReason)
	case State:
		switch {
		case d.strict:
			return false, "a generic state is local"
		case r.Checkpointable:
			return true, "a checkpointable state is part of its layer's state"
		default:
			return false, "a state that is not checkpointable is local"
		}
	case SharedKV:
		owner := ownerOf(d.entries, r.Layer)
		managed, _ := d.decide(owner)
		return managed, "where " + owner.name + " is"
	default:
		return false, "rows of a sequence are not in pages"
	}
}

// decideKV compares keys and values with the first ones. The number of heads is not
// compared: pools are formed by it, here as there. Of several differences the first one
// is the reason.
func (d *decider) decideKV(e *entry, r PagedKV) (bool, string) {
	if e == d.kv {
		return true, "the first keys and values, the reference of the others"
	}
	ref := d.kv.resource.(PagedKV)
	var differs []string
	note := func(what string, a, b any) {
		// The order of the calls of note is that of the document, and so is the first reason.
		if a != b {
			differs = append(differs, fmt.Sprintf("%s %v differs from %v of %s", what, a, b, d.kv.name))
		}
	}
	note("head_dim", r.HeadDim, ref.HeadDim)
	note("value_dim", r.ValueDim, ref.ValueDim)
	note("side_bytes", r.SideBytes, ref.SideBytes)
	note("dtype", r.DType, ref.DType)
	note("kv_factor", r.factor(), ref.factor())
	note("kv_layout", r.layout(), ref.layout())
	switch {
	case len(differs) == 0:
		return true, "agrees with " + d.kv.name + " in head_dim, dtype, kv_factor and kv_layout"
	case d.strict:
		return false, differs[0]
	default:
		return true, differs[0] + ": another pool"
	}
}

// decideState compares a state with the first one of its kind. unfit says why the
// whole kind does not fit, "" if it does.
func (d *decider) decideState(e, ref *entry, same bool, unfit string) (bool, string) {
	reason := "agrees with " + ref.name + " in shape and dtype"
	if e == ref {
		reason = "the first of its kind, the reference of the others"
	}
	switch {
	case same && unfit == "":
		return true, reason
	// A difference from the reference says more than that the kind does not fit.
	case !same:
		reason = fmt.Sprintf("%s differs from %s of %s", e.resource, ref.resource, ref.name)
	default:
		reason = unfit
	}
	if d.strict {
		return false, reason
	}
	return true, reason + ": a state is so many bytes here"
}

// blockers are the local resources, for whose sake nothing can be reused.
func blockers(decisions []Decision) []string {
	var names []string
	for _, d := range decisions {
		if !d.Managed {
			names = append(names, d.Name)
		}
	}
	return slices.Clip(names)
}
