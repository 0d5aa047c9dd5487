package model

func mulPanel(sums *[panel]float32, x, weights []float32) { plainMulPanel(sums, x, weights) }
