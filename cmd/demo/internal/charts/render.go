package charts

import (
	"bytes"
	"fmt"
	"html"
	"image/png"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// SVG draws the chart without its title as an element of a page. It has no size of its own
// and refers to nothing.
func (c *Chart) SVG() (string, error) {
	canvas := vgsvg.New(width, height)
	if err := c.draw(draw.New(canvas), ""); err != nil {
		return "", fmt.Errorf("chart %s: %w", c.Name, err)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	text := b.String()
	// What comes before the first group is the head of a file: it has a size, and the
	// address of a namespace that pages do not need.
	at := strings.Index(text, "<g ")
	if at < 0 {
		return "", fmt.Errorf("chart %s: the library drew no group", c.Name)
	}
	head := fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`+"\n",
		width.Points(), height.Points(), attribute(c.Title))
	return head + fit(text[at:]), nil
}

// textElement is a text of the library's SVG: its attributes, its size and what it says.
var textElement = regexp.MustCompile(`<text( [^>]*?font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// fit gives each text the length that it was drawn for, so that it keeps its place where the
// reader's font is wider or narrower.
func fit(svg string) string {
	return textElement.ReplaceAllStringFunc(svg, func(element string) string {
		parts := textElement.FindStringSubmatch(element)
		size, err := strconv.ParseFloat(parts[2], 64)
		if err != nil {
			return element
		}
		long := textStyle(Ink, vg.Length(size)).Width(html.UnescapeString(parts[3]))
		return fmt.Sprintf(`<text%s textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`,
			parts[1], long.Points(), parts[3])
	})
}

// attribute makes a text fit to be the value of an attribute.
func attribute(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;").Replace(text)
}

// pngScale is how many dots of an image a point is.
const pngScale = 2

// PNG writes the chart as an image.
func (c *Chart) PNG(w io.Writer) error { return Sheet(w, []*Chart{c}) }

// Sheet writes all charts as one image, two beside each other, with their titles.
func Sheet(w io.Writer, list []*Chart) error {
	columns := min(2, len(list))
	rows := (len(list) + columns - 1) / columns
	high := height + titleSize + 2*gap
	canvas := vgimg.NewWith(vgimg.UseWH(vg.Length(columns)*width, vg.Length(rows)*high),
		vgimg.UseDPI(72*pngScale))
	whole := draw.New(canvas)
	for i, c := range list {
		x, y := vg.Length(i%columns)*width, whole.Max.Y-vg.Length(i/columns)*high
		part := draw.Canvas{Canvas: canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - high}, Max: vg.Point{X: x + width, Y: y},
		}}
		if err := c.draw(part, c.Title); err != nil {
			return fmt.Errorf("chart %s: %w", c.Name, err)
		}
	}
	return png.Encode(w, canvas.Image())
}
