//go:build !(goexperiment.simd && amd64)

package model

// panels computes the panels [from, to) for all rows.
func (p *product) panels(from, to int) { p.plainPanels(from, to, 0) }
