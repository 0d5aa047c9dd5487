package report

import (
	"fmt"
	"io"
	"unicode/utf8"

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

// Write draws the table, at most as wide as Width: one that is wider is drawn in parts, each
// with the first column and as many of the others as fit.
func (t *Table) Write(w io.Writer, s Style) error { return t.write(w, s, Width()) }

func (t *Table) write(w io.Writer, s Style, width int) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", t.Title); err != nil {
		return err
	}
	for _, columns := range t.parts(width) {
		if err := t.draw(w, s, columns); err != nil {
			return err
		}
	}
	return nil
}

// parts divides the columns into tables of a width. Each has the first column, and at least
// one other if there is one, however wide these are: nothing is cut off.
func (t *Table) parts(width int) (list [][]int) {
	const border, padding = 1, 2
	cell := func(column int) int { return t.columnWidth(column) + padding + border }
	part, used := []int{0}, border+cell(0)
	for column := 1; column < len(t.Header); column++ {
		if len(part) > 1 && used+cell(column) > width {
			list = append(list, part)
			part, used = []int{0}, border+cell(0)
		}
		part, used = append(part, column), used+cell(column)
	}
	return append(list, part)
}

// columnWidth is the number of characters of a column's longest cell.
func (t *Table) columnWidth(column int) int {
	n := utf8.RuneCountInString(t.Header[column])
	for _, row := range t.Rows {
		n = max(n, utf8.RuneCountInString(row[column]))
	}
	return n
}

// pick returns the cells of some columns.
func pick(row []string, columns []int) []string {
	cells := make([]string, len(columns))
	for i, column := range columns {
		cells[i] = row[column]
	}
	return cells
}

// draw draws some columns.
func (t *Table) draw(w io.Writer, s Style, columns []int) error {
	symbols := tw.StyleASCII
	if s == Unicode {
		symbols = tw.StyleLight
	}
	align := []tw.Align{tw.AlignLeft}
	for range len(columns) - 1 {
		align = append(align, tw.AlignRight)
	}
	table := tablewriter.NewTable(w,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{Symbols: tw.NewSymbols(symbols)})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
	)
	table.Header(pick(t.Header, columns))
	for _, row := range t.Rows {
		if err := table.Append(pick(row, columns)); err != nil {
			return err
		}
	}
	return table.Render()
}
