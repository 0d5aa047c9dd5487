package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/resources"
)

// Kept is what layers keep alike: the same resource, in the same place, for the same reason.
type Kept struct {
	Layers []int  `json:"layers"`
	Keeps  string `json:"keeps"`
	Pool   string `json:"pool"`
	// TokenBytes and SequenceBytes are of one layer: what grows with a sequence has the first. Both
	// are 0 in a layer that reads what another keeps.
	TokenBytes    int64  `json:"token_bytes,omitempty"`
	SequenceBytes int64  `json:"sequence_bytes,omitempty"`
	Reason        string `json:"reason"`
	// AutoDeploy is why keys and values are in no pages of TensorRT-LLM's AutoDeploy; "": they are.
	AutoDeploy string `json:"auto_deploy_local,omitempty"`
}

// Declare says of each layer what it keeps, where, and why: by the rules of package resources, and
// where those of TensorRT-LLM's AutoDeploy decide otherwise.
func (r Request) Declare() ([]Kept, error) {
	m, cache := r.Model.Model, r.Model.Configure(r.Cache)
	c, err := resources.OfModel(m, cache)
	if err != nil {
		return nil, err
	}
	// These are of all pools, the cross pool among them.
	cache.PoolFractions, cache.CrossKVCacheFraction = nil, 0
	o := resources.Options{Cache: cache, MaxSeqLen: m.MaxSeqLen, MaxSequences: 1}
	own, err := c.Plan(o)
	if err != nil {
		return nil, err
	}
	o.Strict = true
	strict, _ := c.Plan(o) // nil if no keys and values are left
	var list []Kept
	for i, d := range own.Decisions {
		k := keptBy(d, own.Pools)
		// A state has the same place there, with a shape that a model's geometry does not have.
		if _, state := d.Resource.(resources.State); !state && strict != nil &&
			!strict.Decisions[i].Managed {
			k.AutoDeploy = strict.Decisions[i].Reason
		}
		at := slices.IndexFunc(list, func(other Kept) bool { return other.alike(k) })
		if at < 0 {
			at, list = len(list), append(list, k)
		}
		list[at].Layers = append(list[at].Layers, d.Layer)
	}
	return list, nil
}

// keptBy is a decision with the bytes of the resource.
func keptBy(d resources.Decision, pools []windows.Pool) Kept {
	k := Kept{Keeps: d.Resource.String(), Pool: d.Pool, Reason: d.Reason}
	pool := &pools[slices.IndexFunc(pools, func(p windows.Pool) bool { return p.Name == d.Pool })]
	switch d.Resource.(type) {
	case resources.SharedKV:
	case resources.State:
		k.Keeps, k.SequenceBytes = "recurrent state", pool.StateBytes
	default:
		k.TokenBytes = pool.TokenBytes() / int64(len(pool.Layers))
	}
	if n := len(pool.Layers); n > 1 {
		k.Reason += fmt.Sprintf("; its pool has %d layers", n)
	} else {
		k.Reason += "; alone in its pool"
	}
	return k
}

func (k Kept) alike(other Kept) bool {
	k.Layers, other.Layers = nil, nil
	return fmt.Sprint(k) == fmt.Sprint(other)
}

// declared writes what layers keep.
func (p *Plan) declared(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nwhat layers keep, where and why; bytes are those of one layer\n")
	for _, k := range p.Resources {
		size := ""
		switch {
		case k.TokenBytes > 0:
			size = report.Bytes(k.TokenBytes) + " a token "
		case k.SequenceBytes > 0:
			size = report.Bytes(k.SequenceBytes) + " a sequence "
		}
		fmt.Fprintf(&b, "%s: %s\n    %sin pages of pool %s: %s\n", layers(k.Layers), k.Keeps, size,
			k.Pool, k.Reason)
		if k.AutoDeploy != "" {
			fmt.Fprintf(&b, "    local in TensorRT-LLM's AutoDeploy: %s\n", k.AutoDeploy)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// layers draws numbers of layers, with runs as their first and last.
func layers(list []int) string {
	var words []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		word := fmt.Sprint(list[i])
		if end > i {
			word = fmt.Sprintf("%d-%d", list[i], list[end])
		}
		words, i = append(words, word), end+1
	}
	if len(list) == 1 {
		return "layer " + words[0]
	}
	return "layers " + strings.Join(words, " ")
}
