package charts

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// samples are a chart of each kind.
func samples() []*Chart {
	x, y := []float64{}, []float64{}
	for i := range 20 {
		x, y = append(x, math.Pow(2, float64(i))), append(y, float64(i)/20)
	}
	lines := &Chart{
		Name: "lines", Title: `Hits <"of"> a cache`, X: Axis{Label: "blocks", Log: true},
		Y: Axis{Label: "rate", Unit: Percent},
		Lines: []Line{{"lru", Blue, x, y, Solid}, {"one & only", Orange, x[7:8], []float64{0.9}, Marked},
			{"optimal", Neutral, x[3:9], y[3:9], Dashed}},
	}
	areas := &Chart{
		Name: "areas", Title: "Tiers", X: Axis{Unit: Seconds}, Y: Axis{Unit: Bytes},
		Lines: []Line{{"host", Orange, x[:5], []float64{4e6, 3e6, 4e6, 4e6, 5e6}, Area},
			{"device", Blue, x[:5], []float64{1e6, 1e6, 2e6, 0, 1e6}, Area}},
	}
	bars := &Chart{
		Name: "bars", Title: "Distances", Y: Axis{Unit: Seconds}, Categories: []string{"1", "2"},
		Bars: []Bars{{"first", Blue, []float64{1, 3}}, {"second", Green, []float64{2, 0}}},
	}
	across := *bars
	across.Name, across.Horizontal = "across", true
	flat := &Chart{Name: "flat", Title: "Nothing", Categories: []string{"a"},
		Bars: []Bars{{"none", Red, []float64{0}}}}
	return []*Chart{lines, areas, bars, &across, flat}
}

// TestSVG: what is drawn is well-formed and refers to nothing.
func TestSVG(t *testing.T) {
	for _, c := range samples() {
		svg, err := c.SVG()
		require.NoError(t, err)
		texts := 0
		decoder := xml.NewDecoder(strings.NewReader(svg))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, c.Name)
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
				texts++
			}
		}
		assert.Greater(t, texts, 3, c.Name)
		for _, foreign := range []string{"http", "href", "url(", "<script", "NaN"} {
			assert.NotContains(t, svg, foreign, c.Name)
		}
		again, err := c.SVG()
		require.NoError(t, err)
		assert.Equal(t, svg, again, "%s is drawn the same way each time", c.Name)
	}
}

// TestColors: series are seen on the background, and text is readable on it.
func TestColors(t *testing.T) {
	for c := range colors {
		least := 3.0
		switch c {
		case Ink, Muted:
			least = 4.5
		case Grid, Surface:
			continue
		}
		assert.GreaterOrEqual(t, contrast(palette[c], palette[Surface]), least, "colour %d", c)
	}
}

// contrast is the ratio of the luminances of two colours, as WCAG 2 defines it.
func contrast(a, b color.RGBA) float64 {
	luminance := func(c color.RGBA) float64 {
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v := float64([]uint8{c.R, c.G, c.B}[i]) / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			sum += weight * v
		}
		return sum
	}
	x, y := luminance(a)+0.05, luminance(b)+0.05
	return max(x, y) / min(x, y)
}

// TestImages: images have the colours of their series.
func TestImages(t *testing.T) {
	list := samples()
	if testing.Short() {
		list = list[2:4] // the race detector makes drawing dots slow
	}
	var whole bytes.Buffer
	require.NoError(t, Sheet(&whole, list))
	sheet, err := png.Decode(&whole)
	require.NoError(t, err)
	for _, c := range list {
		var b bytes.Buffer
		require.NoError(t, c.PNG(&b))
		picture, err := png.Decode(&b)
		require.NoError(t, err)
		assert.Equal(t, 2*picture.Bounds().Dx(), sheet.Bounds().Dx())
		assert.Equal(t, (len(list)+1)/2*picture.Bounds().Dy(), sheet.Bounds().Dy())
		for i := range c.Bars {
			if c.top(0) > 0 {
				assert.Greater(t, dots(picture, palette[c.Bars[i].Color]), 200, "%s %s", c.Name,
					c.Bars[i].Label)
			}
		}
	}
}

// dots counts the dots of a colour.
func dots(i image.Image, want color.Color) (n int) {
	r, g, b, _ := want.RGBA()
	for y := i.Bounds().Min.Y; y < i.Bounds().Max.Y; y++ {
		for x := i.Bounds().Min.X; x < i.Bounds().Max.X; x++ {
			if p, q, s, _ := i.At(x, y).RGBA(); p>>8 == r>>8 && q>>8 == g>>8 && s>>8 == b>>8 {
				n++
			}
		}
	}
	return n
}

// TestTerminal: drawings show titles, labels and the highest values.
func TestTerminal(t *testing.T) {
	for _, c := range samples() {
		var b bytes.Buffer
		require.NoError(t, c.Terminal(&b))
		assert.True(t, strings.HasPrefix(b.String(), "\n"+c.Title+"\n"))
		if len(c.labels()) > 1 {
			for _, label := range c.labels() {
				assert.Contains(t, b.String(), label, c.Name)
			}
		}
	}
	var b bytes.Buffer
	require.NoError(t, samples()[2].Terminal(&b))
	assert.Equal(t, strings.Join([]string{
		"", "Distances",
		"1 " + strings.Repeat("█", 13) + strings.Repeat(" ", 27) + " 1 s  first",
		"  " + strings.Repeat("█", 27) + strings.Repeat(" ", 13) + " 2 s  second",
		"2 " + strings.Repeat("█", 40) + " 3 s  first",
		"  " + strings.Repeat(" ", 40) + " 0  second", "",
	}, "\n"), b.String())
}

// TestLinesOnATerminal: lines begin and end where their points do, and one of one point is seen.
func TestLinesOnATerminal(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, samples()[0].Terminal(&b))
	lines := strings.Split(b.String(), "\n")
	require.Len(t, lines, 7)
	assert.Regexp(t, `^lru +▁.*█.* 0 % to 95 %$`, lines[2])
	assert.Regexp(t, `^one & only +█+ +90 % to 90 %$`, lines[3])
	assert.Regexp(t, `^ +1 +524k$`, lines[5])
	assert.Less(t, strings.Count(lines[3], "█"), 5)
}

func TestUnits(t *testing.T) {
	for want, got := range map[string]string{
		"12.5 %": Percent.format(0.125), "100 %": Percent.format(1),
		"1.5 MiB": Bytes.format(1.5 * 1024 * 1024), "0": Bytes.format(0),
		"999": Count.format(999), "1k": Count.format(1000), "12.3k": Count.format(12345),
		"2.5M":   Count.format(2.5e6),
		"250 ms": Seconds.format(0.25), "3 µs": Seconds.format(3e-6), "1750 s": Seconds.format(1750),
		"0.5": Count.format(0.5),
	} {
		assert.Equal(t, want, got)
	}
}

func TestTicks(t *testing.T) {
	labels := func(a Axis, low, high float64) (list []string) {
		for _, tick := range (ticks{a}).Ticks(low, high) {
			list = append(list, tick.Label)
		}
		return list
	}
	assert.Contains(t, labels(Axis{Unit: Percent}, 0, 1.02), "50 %")
	assert.Contains(t, labels(Axis{Log: true}, 8, 20000), "10k")
}

func TestSort(t *testing.T) {
	l := Line{X: []float64{3, 1, 2}, Y: []float64{30, 10, 20}}
	l.Sort()
	assert.Equal(t, Line{X: []float64{1, 2, 3}, Y: []float64{10, 20, 30}}, l)
}
