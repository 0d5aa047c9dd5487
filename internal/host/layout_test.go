package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// TestEveryShapeOfPages: for each shape of pages a token's rows are those that
// the pool's regions give to it, and a wrong byte in any of them is seen and
// named.
func TestEveryShapeOfPages(t *testing.T) {
	base := windows.Pool{Name: "p", KVHeads: 2, HeadDim: 32, DType: windows.Float16,
		Layers: []int{1, 4}, TokensPerBlock: 4}
	shapes := map[string]func(*windows.Pool){
		"latent":       func(p *windows.Pool) { p.KVFactor, p.KVHeads = 1, 1 },
		"K and V":      func(p *windows.Pool) { p.ValueDim = 16 },
		"NHD":          func(p *windows.Pool) { p.Layout = windows.NHD },
		"nvfp4":        func(p *windows.Pool) { p.DType = windows.NVFP4 },
		"side bytes":   func(p *windows.Pool) { p.SideBytes = 7 },
		"all together": func(p *windows.Pool) { p.DType, p.ValueDim, p.SideBytes = windows.NVFP4, 16, 3 },
	}
	for name, set := range shapes {
		p := base
		set(&p)
		l := NewLayout(p)
		page := make([]byte, p.PageBytes())
		for token := range p.TokensPerBlock {
			l.Write(page, token, Chain(token))
		}
		for _, r := range p.Regions() {
			for run := range r.Runs {
				for token := range p.TokensPerBlock {
					at := r.Offset + run*r.TokenBytes*int64(p.TokensPerBlock) + int64(token)*r.TokenBytes
					page[at] ^= 1
					err := l.Verify(page, token, Chain(token))
					require.Error(t, err, "%s: byte %d", name, at)
					assert.Contains(t, err.Error(), "layer ", "%s: byte %d", name, at)
					assert.NoError(t, l.Verify(page, 1-min(1, token), Chain(1-min(1, token))), "%s: byte %d", name,
						at)
					page[at] ^= 1
				}
			}
		}
	}
}
