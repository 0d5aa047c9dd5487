package charts

import (
	"fmt"
	"image/color"
	"strings"
)

// Color is a colour by its role. What it looks like is up to the page, or to the palette of
// images.
type Color int

// The colours: text, lines of the frame, the background, and those of series.
const (
	Ink Color = iota
	Muted
	Grid
	Surface
	Blue
	Orange
	Green
	Yellow
	Violet
	Red
	Pink
	Neutral
	colors
)

// Series lists the colours of series in the order in which to use them.
var Series = []Color{Blue, Orange, Green, Yellow, Violet, Red, Pink, Neutral}

// shades are a colour on a light and on a dark background. All are at least three times
// lighter or darker than their background, the text colours more.
type shades struct{ name, light, dark string }

var palette = [colors]shades{
	Ink:     {"ink", "#1A1A19", "#F2F1ED"},
	Muted:   {"muted", "#62615C", "#A8A69F"},
	Grid:    {"grid", "#DEDCD6", "#3C3B38"},
	Surface: {"surface", "#FCFCFB", "#1A1A19"},
	Blue:    {"blue", "#2A78D6", "#5B9DF0"},
	Orange:  {"orange", "#D05A22", "#F08A55"},
	Green:   {"green", "#14885F", "#35C08F"},
	Yellow:  {"yellow", "#A87A00", "#DCAE30"},
	Violet:  {"violet", "#6A4FC4", "#9A85EE"},
	Red:     {"red", "#C93636", "#F07070"},
	Pink:    {"pink", "#BE4A92", "#E588BF"},
	Neutral: {"neutral", "#52514E", "#C9C7C0"},
}

// Variable is the CSS variable of a colour.
func (c Color) Variable() string { return "--" + palette[c].name }

// Background says what a page is drawn on.
type Background int

// The backgrounds.
const (
	Light Background = iota
	Dark
)

// CSS declares the variables of all colours.
func CSS(on Background) string {
	var b strings.Builder
	for c := range colors {
		value := palette[c].light
		if on == Dark {
			value = palette[c].dark
		}
		fmt.Fprintf(&b, "%s:%s;", c.Variable(), value)
	}
	return b.String()
}

// theme gives the library a colour for each role.
type theme func(Color) color.Color

// lightTheme is for images.
func lightTheme(c Color) color.Color {
	var rgb color.RGBA
	rgb.A = 255
	if _, err := fmt.Sscanf(palette[c].light, "#%02X%02X%02X", &rgb.R, &rgb.G, &rgb.B); err != nil {
		panic("charts: colour " + palette[c].light)
	}
	return rgb
}

// markedTheme has a colour for each role that stands for a variable in the SVG of the library,
// which knows no variables.
func markedTheme(c Color) color.Color { return color.RGBA{R: 255, G: 0, B: uint8(16 * c), A: 255} }

// variables replaces the colours of markedTheme by their variables.
func variables(svg string) string {
	var pairs []string
	for c := range colors {
		r, g, b, _ := markedTheme(c).RGBA()
		// The library computes its digits in floating point and cuts them off, so they may
		// be one less.
		for _, less := range []uint32{0, 1} {
			if b>>8 >= less {
				pairs = append(pairs, fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8-less),
					"var("+c.Variable()+")")
				pairs = append(pairs, fmt.Sprintf("#%02X%02X%02X", r>>8-1, g>>8, b>>8-less),
					"var("+c.Variable()+")")
			}
		}
	}
	return strings.NewReplacer(pairs...).Replace(svg)
}
