package windows

import (
	"fmt"
	"slices"
)

// MaxRanks is the number of devices that a model can be divided between.
const MaxRanks = 1024

// OfRank is the share of a valid model that one of several devices holds under tensor
// parallelism. KV heads are divided evenly. Fewer heads than devices are repeated, as in
// TensorRT-LLM: with 2 KV heads on 8 devices each head is on 4 of them, because the
// query heads that use it are; latent vectors (KVFactor 1) are one head, on all. The
// bytes of recurrent states are divided evenly, since each device updates its own; a
// model whose states cannot be is refused, and so are heads that fit neither way.
//
// A reader of model files that knows the heads of states does better: see
// hfconfig.Options.TensorParallel.
func (m Model) OfRank(ranks int) (Model, error) {
	if ranks < 1 || ranks > MaxRanks {
		return Model{}, fmt.Errorf("windows: %d devices are not within 1 and %d", ranks, MaxRanks)
	}
	heads, err := divide(m.KVHeads, ranks)
	if err != nil {
		return Model{}, err
	}
	cross, err := divide([]int{m.CrossKVHeads}, ranks)
	if err != nil {
		return Model{}, err
	}
	m.KVHeads, m.CrossKVHeads = heads, cross[0]
	m.States = slices.Clone(m.States)
	for i := range m.States {
		s := &m.States[i]
		if s.Bytes%int64(ranks) != 0 {
			return Model{}, fmt.Errorf("windows: a state of %d bytes cannot be divided between %d devices",
				s.Bytes, ranks)
		}
		s.Bytes /= int64(ranks)
	}
	return m, nil
}

// divide gives the heads of one rank. Layers without heads have none on any rank.
func divide(heads []int, ranks int) ([]int, error) {
	own := slices.Clone(heads)
	for i, n := range heads {
		switch {
		case n%ranks == 0:
			own[i] = n / ranks
		case ranks%n == 0:
			own[i] = 1
		default:
			return nil, fmt.Errorf("windows: %d KV heads cannot be divided between %d devices", n, ranks)
		}
	}
	return own, nil
}

// Copies is on how many of the devices each head of a layer lies when the model is
// divided: 1 if every device has heads of its own, 0 for a layer without keys and
// values. The pages of a pool whose layers have more than one copy hold equal bytes on
// that many devices.
func (m Model) Copies(layer, ranks int) int {
	n := m.heads(layer)
	if n == 0 {
		return 0
	}
	return max(1, ranks/n)
}
