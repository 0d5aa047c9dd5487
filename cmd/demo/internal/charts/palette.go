package charts

import "image/color"

// Color is a colour by its role.
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

// palette is what the colours look like. All are at least three times darker than the background,
// the text colours more. A dark page turns the whole drawing over.
var palette = [colors]color.RGBA{
	Ink:     {0x1A, 0x1A, 0x19, 0xFF},
	Muted:   {0x62, 0x61, 0x5C, 0xFF},
	Grid:    {0xDE, 0xDC, 0xD6, 0xFF},
	Surface: {0xFC, 0xFC, 0xFB, 0xFF},
	Blue:    {0x2A, 0x78, 0xD6, 0xFF},
	Orange:  {0xD0, 0x5A, 0x22, 0xFF},
	Green:   {0x14, 0x88, 0x5F, 0xFF},
	Yellow:  {0xA8, 0x7A, 0x00, 0xFF},
	Violet:  {0x6A, 0x4F, 0xC4, 0xFF},
	Red:     {0xC9, 0x36, 0x36, 0xFF},
	Pink:    {0xBE, 0x4A, 0x92, 0xFF},
	Neutral: {0x52, 0x51, 0x4E, 0xFF},
}
