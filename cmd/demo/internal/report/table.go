package report

import (
	"fmt"
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Table is a title, a header and rows of the same length. The first column is
// aligned to the left, the others to the right.
type Table struct {
	Title  string
	Header []string
	Rows   [][]string
}

// Row adds a row; values are printed as fmt.Sprint does.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Write draws the table.
func (t *Table) Write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", t.Title); err != nil {
		return err
	}
	align := []tw.Align{tw.AlignLeft}
	for range len(t.Header) - 1 {
		align = append(align, tw.AlignRight)
	}
	table := tablewriter.NewTable(w,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Symbols: tw.NewSymbols(tw.StyleLight),
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
	)
	table.Header(t.Header)
	for _, row := range t.Rows {
		if err := table.Append(row); err != nil {
			return err
		}
	}
	return table.Render()
}
