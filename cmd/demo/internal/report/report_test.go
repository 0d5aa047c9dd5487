package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNumbers(t *testing.T) {
	assert.Equal(t, "0", Count(0))
	assert.Equal(t, "999", Count(999))
	assert.Equal(t, "1 000", Count(int64(1000)))
	assert.Equal(t, "-12 345 678", Count(-12345678))
	assert.Equal(t, "512 B", Bytes(512))
	assert.Equal(t, "1.5 KiB", Bytes(1536))
	assert.Equal(t, "2.0 GiB", Bytes(2<<30))
	assert.Equal(t, "25.0 %", Percent(1, 4))
	assert.Equal(t, "-", Percent(1, 0))
	assert.Equal(t, "15 ns", Duration(15))
	assert.Equal(t, "1.5 µs", Duration(1500))
	assert.Equal(t, "2.35 ms", Duration(2345*time.Microsecond))
	assert.Equal(t, "12 s", Duration(12*time.Second))
	assert.Equal(t, "4000 s", Duration(4000*time.Second))
}

func TestSparkline(t *testing.T) {
	assert.Equal(t, "▁▄█", Sparkline([]float64{0, 0.45, 1}, 10))
	assert.Equal(t, "▁█", Sparkline([]float64{0, 0, 1, 1}, 2))
	assert.Empty(t, Sparkline(nil, 5))
}

func TestTable(t *testing.T) {
	table := Table{Title: "pools", Header: []string{"pool", "pages"}}
	table.Row("w1024h8", 12)
	table.Row("wfullh8", 3456)
	var b bytes.Buffer
	require.NoError(t, table.Write(&b))
	assert.Contains(t, b.String(), "\npools\n┌")
	assert.Contains(t, b.String(), "   12 ")
	assert.Contains(t, b.String(), "pool ")
}

func TestProgressWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, "replay", 100)
	at := p.start
	p.now = func() time.Time { return at }
	p.Set(1, "x")
	assert.Empty(t, b.String(), "too early for a line")
	at = at.Add(4 * time.Second)
	p.Set(7, "half hit")
	at = at.Add(time.Second)
	p.Set(9, "")
	p.Done(100, "")
	assert.Equal(t, "replay: 7 of 100 requests, half hit, 4 s\nreplay: 100 of 100 requests, 5 s\n",
		b.String())
	b.Reset()
	NewProgress(&b, "demo", -1).Done(3, "")
	assert.True(t, strings.HasPrefix(b.String(), "demo: 3 requests"))
}
