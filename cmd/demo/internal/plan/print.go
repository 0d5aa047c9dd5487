package plan

import (
	"fmt"
	"io"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/report"
)

// Print writes the plan as tables.
func (p *Plan) Print(w io.Writer) error {
	head := p.Model
	if p.Type != "" {
		head += " (" + p.Type + ")"
	}
	if _, err := fmt.Fprintf(w, "%s: %d layers, sequences of up to %s tokens, blocks of %d\n",
		head, p.Layers, report.Count(p.MaxSeqLen), p.BlockTokens); err != nil {
		return err
	}
	if len(p.Resources) > 0 {
		if err := p.declared(w); err != nil {
			return err
		}
	}
	tables := []report.Table{p.poolTable(), p.fitTable(), p.offloadTable()}
	for i := range tables {
		if err := tables[i].Write(w); err != nil {
			return err
		}
	}
	return p.remarks(w)
}

// poolTable lists the pools with their shares.
func (p *Plan) poolTable() report.Table {
	t := report.Table{
		Title: fmt.Sprintf("pools: %s of %s free device memory, %s of host memory",
			report.Bytes(p.Device), report.Bytes(p.DeviceFree), report.Bytes(p.Host)),
		Header: []string{"pool", "a layer's token", "layers", "page", "a token", "pages", "share"},
	}
	if p.Host > 0 {
		t.Header = append(t.Header, "host pages")
	}
	for _, pool := range p.Pools {
		token := report.Bytes(pool.TokenBytes)
		if pool.TokenBytes == 0 {
			token = "-"
		}
		cells := []any{
			pool.Name, pool.holds(), pool.Layers, report.Bytes(pool.PageBytes), token,
			report.Count(pool.Primary), fmt.Sprintf("%.1f %%", 100*pool.Share),
		}
		if p.Host > 0 {
			cells = append(cells, report.Count(pool.Secondary))
		}
		t.Row(cells...)
	}
	return t
}

// holds is what a page of the pool has of each token in each layer, in short.
func (p *Pool) holds() string {
	switch {
	case p.Kind == "state":
		return "state"
	case p.ValueDim == 0:
		return fmt.Sprintf("latent %d %s", p.HeadDim, p.DType)
	case p.ValueDim != p.HeadDim:
		return fmt.Sprintf("%d x (%d + %d) %s", p.KVHeads, p.HeadDim, p.ValueDim, p.DType)
	default:
		return fmt.Sprintf("2 x %d x %d %s", p.KVHeads, p.HeadDim, p.DType)
	}
}

// fitTable lists how many sequences fit.
func (p *Plan) fitTable() report.Table {
	title := "sequences that fit at a time"
	if len(p.Pools) > 1 {
		title += "; memory is divided " + p.Division
	}
	t := report.Table{
		Title:  title,
		Header: []string{"tokens", "a sequence", "sequences", "tokens in all", "limited by"},
	}
	for _, f := range p.Fits {
		t.Row(report.Count(f.Tokens), report.Bytes(f.Bytes), report.Count(f.Sequences),
			report.Count(int64(f.Sequences)*int64(f.Tokens)), f.Limit)
	}
	return t
}

// offloadTable lists the return of prefixes from host memory.
func (p *Plan) offloadTable() report.Table {
	t := report.Table{
		Title:  "bringing a prefix back from host memory over the link of " + p.Offload.Link,
		Header: []string{"tokens", "bytes", "time", "worth it if prefill is below"},
	}
	computed := p.Offload.Parameters > 0
	if computed {
		t.Header = append(t.Header, "computing it")
	}
	for _, b := range p.Offload.Rows {
		cells := []any{report.Count(b.Tokens), report.Bytes(b.Bytes),
			report.Duration(time.Duration(b.Nanos)), report.Count(int64(b.Rate)) + " tokens/s"}
		if computed {
			cells = append(cells, report.Duration(time.Duration(b.Compute)))
		}
		t.Row(cells...)
	}
	return t
}

// remarks are the sentences below the tables.
func (p *Plan) remarks(w io.Writer) error {
	lines := []string{
		fmt.Sprintf("%s of %s tokens: %s", plural(p.Need.Sequences, "sequence"),
			report.Count(p.Need.Tokens), report.Bytes(p.Need.Bytes)),
		fmt.Sprintf("longest sequence that fits alone: %s tokens; longest prompt without chunks: %s",
			report.Count(p.LongestAlone), report.Count(p.LongestPrompt)),
	}
	lines = append(lines, p.memory()...)
	if p.Offload.Parameters > 0 {
		lines = append(lines, p.Offload.verdict())
	}
	for _, warning := range p.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	for _, note := range p.Notes {
		lines = append(lines, "note: "+note)
	}
	for i, line := range lines {
		if i == 0 {
			line = "\n" + line
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// memory says what is taken beside device pages, and of all devices.
func (p *Plan) memory() []string {
	lines := []string{"records of all pages and blocks: about " + report.Bytes(p.Metadata)}
	if h := &p.HostUse; p.Host > 0 {
		line := fmt.Sprintf("of host memory %s are for contents, %s for copies before evictions",
			report.Bytes(h.Contents), report.Bytes(h.Ahead))
		if h.Save > 0 {
			line += fmt.Sprintf("; a store takes at most %s of both", report.Bytes(h.Save))
		}
		lines = append([]string{line}, lines...)
	}
	if n := p.Ranks.Devices; n > 1 {
		lines = append(lines, fmt.Sprintf("on %d devices in all: %s of device memory, %s of host memory",
			n, report.Bytes(p.Ranks.Device), report.Bytes(p.Ranks.Host)))
	}
	return lines
}

// verdict says from which length on offloading pays.
func (o *Offload) verdict() string {
	on := fmt.Sprintf("offloading over the link of %s, with %.3g parameters a token", o.Link,
		o.Parameters)
	if o.BreakEven == 0 {
		return on + ": a prefix is never back sooner than computed"
	}
	return fmt.Sprintf("%s: a prefix of %s tokens or more is back sooner than computed", on,
		report.Count(o.BreakEven))
}

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return report.Count(n) + " " + thing + "s"
}
