//go:build !(goexperiment.simd && amd64)

package model

import "github.com/kvactor/kvactor/cmd/demo/internal/model/weights"

// panels computes the panels [from, to) for all rows.
func (p *product) panels(from, to int) { p.plainPanels(from, to, 0) }

// pack makes the layout of the weights.
func (q *quantized) pack(g *weights.Groups) { q.packPlanes(g) }

// tile computes a tile.
func (p *quantizedProduct) tile(t tile) { p.planeTile(t) }

// split makes what only vector instructions need of a row.
func (f *fixedRows) split(int) {}
