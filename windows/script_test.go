package windows

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvactor/kvactor/internal/scripttest"
)

// TestScripts runs the conversations under testdata/scripts:
//
//	model layers=6 heads=(8) dim=64 windows=(1024,4096) sink=0 tpb=16 seq=4096
//	tokens at=(16,1040)          what each pool needs and keeps at a position
//	need tokens=4096             pages of one sequence
//	split bytes=100000000 host=0 tokens=0
func TestScripts(t *testing.T) {
	scripttest.Walk(t, func(*testing.T) scripttest.Serve { return (&script{}).run })
}

type script struct {
	model Model
	cache Config
	pools []Pool
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "model":
		return s.open(t, d)
	case "tokens":
		var at []int
		d.ScanArgs(t, "at", &at)
		return s.positions(at)
	case "need":
		var tokens int
		d.ScanArgs(t, "tokens", &tokens)
		return s.each(func(p Pool) string { return fmt.Sprintf("%d pages", p.Need(tokens)) })
	case "split":
		return s.split(t, d)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return ""
	}
}

func (s *script) open(t *testing.T, d *datadriven.TestData) string {
	s.model, s.cache = Model{DType: Float16}, DefaultConfig()
	d.ScanArgs(t, "layers", &s.model.Layers)
	d.ScanArgs(t, "heads", &s.model.KVHeads)
	d.ScanArgs(t, "dim", &s.model.HeadDim)
	d.ScanArgs(t, "seq", &s.model.MaxSeqLen)
	d.ScanArgs(t, "tpb", &s.cache.TokensPerBlock)
	d.MaybeScanArgs(t, "sink", &s.cache.SinkTokenLength)
	d.MaybeScanArgs(t, "windows", &s.cache.MaxAttentionWindow)
	pools, err := Pools(s.model, s.cache)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	s.pools = pools
	return s.each(Pool.String)
}

// each gives a line for every pool, its name first unless the text has it.
func (s *script) each(line func(Pool) string) string {
	var b strings.Builder
	for _, p := range s.pools {
		text := line(p)
		if !strings.HasPrefix(text, p.Name) {
			text = p.Name + ": " + text
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}

// positions draws, for the token at each position, the blocks before it that it
// needs (#) and those that it does not (.), and what a sequence still holds when
// so many tokens are computed.
func (s *script) positions(at []int) string {
	var b strings.Builder
	for _, position := range at {
		b.WriteString(s.each(func(p Pool) string {
			blocks := (position + p.TokensPerBlock - 1) / p.TokensPerBlock
			row := make([]byte, blocks)
			for i := range row {
				row[i] = '.'
				if p.Needs(i, position) {
					row[i] = '#'
				}
			}
			return fmt.Sprintf("at %d %s, kept from block %d", position, row, p.FirstKept(position))
		}))
	}
	return b.String()
}

func (s *script) split(t *testing.T, d *datadriven.TestData) string {
	var budget Budget
	var bytes, host, tokens int
	d.ScanArgs(t, "bytes", &bytes)
	d.MaybeScanArgs(t, "host", &host)
	d.MaybeScanArgs(t, "tokens", &tokens)
	budget.DeviceBytes = int64(bytes)
	c := s.cache
	c.HostCacheSize, c.MaxTokens = int64(host), tokens
	counts, err := Split(s.pools, s.model, c, budget)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	i := -1
	return s.each(func(p Pool) string {
		i++
		return fmt.Sprintf("%d device, %d host pages", counts[i].Primary, counts[i].Secondary)
	})
}
