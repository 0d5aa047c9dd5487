package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/pool/evict/published"
)

// trace is conversations that come back, each with more blocks.
func trace() *replay.Trace {
	t := &replay.Trace{Trace: paper.Trace{TokensPerBlock: 16}}
	fresh, prompts := int32(0), make([]paper.Request, 7)
	for i := range 70 {
		p := &prompts[i*i%7]
		for range 3 {
			*p = append(*p, fresh)
			fresh++
		}
		t.Requests = append(t.Requests, append(paper.Request{}, *p...))
		t.Arrivals = append(t.Arrivals, time.Duration(i)*time.Second)
		t.Blocks += int64(len(*p))
	}
	t.Distinct = int(fresh)
	return t
}

// data is a report of replays without an engine, one of which has what an engine counts.
func data(t *testing.T) *Data {
	var list []*replay.Result
	for _, pages := range []int{20, 60} {
		for _, policy := range []string{published.ARC, published.S3FIFO} {
			c := replay.Config{Trace: "<t>.jsonl", Pages: pages, Intervals: 10}
			r, err := replay.Optimal(t.Context(), c, trace())
			require.NoError(t, err)
			r.Policy = policy
			list = append(list, r)
		}
	}
	r := list[0]
	r.HostPages, r.HostHits, r.PageBytes = 5, r.Hits/3, 4096
	r.Calls = []replay.Calls{{Call: "admit", Calls: 70, Items: 70, Seconds: 0.5, P50: 1e-5, P99: 2e-5,
		Max: 1e-3}}
	r.Copies = []replay.Copies{{Direction: "device to host", Pages: 9, Bytes: 9 * 4096, Seconds: 0.25},
		{Direction: "host to device"}}
	for i := range r.OverTime {
		v := &r.OverTime[i]
		v.HostHits, v.DeviceHits = v.DeviceHits/3, v.DeviceHits-v.DeviceHits/3
		v.BytesOffloaded = 4096 * int64(i)
	}
	d, err := Gather(t.Context(), Origin{Command: "demo replay '<t>.jsonl'", Version: "v1",
		Date: "2026-01-02T03:04:05Z", Machine: "m"}, "<t>.jsonl", trace(), list)
	require.NoError(t, err)
	return d
}

func written(t *testing.T, d *Data) string {
	var b bytes.Buffer
	require.NoError(t, d.Write(&b))
	return b.String()
}

// TestThePageIsWhole: it needs no other file and runs no program.
func TestThePageIsWhole(t *testing.T) {
	text := written(t, data(t))
	for _, foreign := range []string{"http:", "https:", "//", "src=", "href", "url(", "@import",
		"<link", "<iframe", "<img", "javascript", "onload", "ZgotmplZ"} {
		assert.NotContains(t, text, foreign)
	}
	scripts := regexp.MustCompile(`<script[^>]*>`).FindAllString(text, -1)
	assert.Equal(t, []string{`<script type="application/json" id="data">`}, scripts)
	assert.Contains(t, text, "prefers-color-scheme: dark")
	assert.Contains(t, text, "@media print")
	assert.Contains(t, text, `name="viewport"`)
	assert.Contains(t, text, "&lt;t&gt;.jsonl", "names are escaped")
	assert.NotContains(t, text, "<t>")
}

// TestThePageSaysWhereItComesFrom, and has every plot.
func TestThePageSaysWhereItComesFrom(t *testing.T) {
	d := data(t)
	text := written(t, d)
	for _, want := range []string{"demo replay", "v1", "2026-01-02T03:04:05Z", "70 requests in 69 s"} {
		assert.Contains(t, text, want)
	}
	names := []string{}
	for _, c := range d.Charts() {
		names = append(names, c.Name)
		assert.Contains(t, text, `<figure id="`+c.Name+`">`)
	}
	assert.Equal(t, []string{
		"hit-rate-by-tier", "hit-rate-over-time", "hit-rate-by-capacity", "policies", "reuse-distance",
		"bytes", "device-time", "engine-time",
	}, names)
	assert.Equal(t, len(names), strings.Count(text, "<svg "))
}

var (
	script = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)
	rows   = regexp.MustCompile(`(?s)<tr>(<td>.*?)</tr>`)
	cells  = regexp.MustCompile(`<td>(.*?)</td>`)
)

// TestNumbersInThePage: the JSON in the page is the data, and the table shows the rates of the replays.
func TestNumbersInThePage(t *testing.T) {
	d := data(t)
	text := written(t, d)
	found := script.FindStringSubmatch(text)
	require.NotNil(t, found)
	want, err := json.Marshal(d)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), found[1])

	var shown []string
	for _, row := range rows.FindAllStringSubmatch(text, -1) {
		var line []string
		for _, cell := range cells.FindAllStringSubmatch(row[1], -1) {
			line = append(line, strings.ReplaceAll(cell[1], " ", ""))
		}
		shown = append(shown, strings.Join(line, "|"))
	}
	for _, r := range d.Replays {
		assert.Contains(t, strings.Join(shown, "\n"), fmt.Sprintf("%s|atomic|%d|%d|%d|%.2f%%|", r.Policy,
			r.Pages, r.HostPages, r.Hits, 100*r.HitRate))
	}
	sum := d.NewBlocks
	for _, b := range d.Distances {
		sum += b.Lookups
	}
	assert.Equal(t, d.Trace.Blocks, sum, "each lookup has a distance or is new")
}

// TestReferences: there is one optimum for each capacity, no replay hits more, and LRU with
// room for everything hits as much.
func TestReferences(t *testing.T) {
	d := data(t)
	require.Len(t, d.Optimal, 3)
	for _, r := range d.Replays {
		best, ok := atPages(d.Optimal, r)
		require.True(t, ok)
		assert.LessOrEqual(t, r.Hits, best.Hits)
		_, ok = atPages(d.LRU, r)
		assert.True(t, ok)
	}
	assert.Equal(t, d.Trace.Blocks-d.NewBlocks, d.LRU[len(d.LRU)-1].Hits)
}

// TestAReplayOfPagesOnly: without an engine, and without any reuse, there are fewer plots.
func TestAReplayOfPagesOnly(t *testing.T) {
	one := trace()
	one.Requests, one.Arrivals = one.Requests[:1], one.Arrivals[:1]
	r, err := replay.Optimal(t.Context(), replay.Config{Pages: 5, Intervals: 10}, one)
	require.NoError(t, err)
	d, err := Gather(t.Context(), Origin{}, "t", one, []*replay.Result{r})
	require.NoError(t, err)
	assert.Contains(t, written(t, d), "<svg ")
	for _, c := range d.Charts() {
		assert.NotContains(t, []string{"device-time", "engine-time", "bytes", "hit-rate-over-time"},
			c.Name)
	}
}
