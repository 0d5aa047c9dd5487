package model

import "math"

// group is how many inputs of a product share a scale, in quantized weights and
// in fixed-point rows.
const group = 32

// fixedRows are rows of float32 numbers as integers: a number is an integer of
// less than 2²⁴ times the scale of its group of 32, a power of two. The largest
// numbers of a group keep all bits, smaller ones are rounded to the last bit of
// the largest: what adding them as float32 would do to them as well. Sums of
// products of such integers are exact, so that they may be added in any order.
type fixedRows struct {
	groups  int
	numbers []int32   // [row][group][32]
	scales  []float32 // [row][group]; NaN if a number of the group is NaN or infinite
	totals  []int32   // [row][group]: the sum of the numbers
	sums    []float32 // [row][group]: the same times the scale
	halves  []int32   // [row][group][32]: see split
	highs   []int32   // [row][group]: the sum of the high halves
}

// grow makes room for rows.
func (f *fixedRows) grow(rows, groups int) {
	f.groups = groups
	if n := rows * groups; cap(f.scales) < n {
		f.numbers, f.halves = make([]int32, n*group), make([]int32, n*group)
		f.scales, f.sums = make([]float32, n), make([]float32, n)
		f.totals, f.highs = make([]int32, n), make([]int32, n)
	}
}

// at gives the numbers of a group of a row.
func (f *fixedRows) at(row, g int) *[group]int32 {
	return (*[group]int32)(f.numbers[(row*f.groups+g)*group:])
}

// set makes a row of x.
func (f *fixedRows) set(row int, x []float32) {
	for g := range f.groups {
		i := row*f.groups + g
		f.scales[i], f.totals[i] = fix(f.at(row, g), (*[group]float32)(x[g*group:]))
		f.sums[i] = float32(float32(f.totals[i]) * f.scales[i])
	}
}

// fix gives the integers of a group, their scale and their sum.
func fix(out *[group]int32, x *[group]float32) (scale float32, total int32) {
	top := uint32(0)
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	if top >= 0x7f800000 {
		*out = [group]int32{}
		return float32(math.NaN()), 0
	}
	const mantissa, bias = 23, 127
	const roundInt = 3 << 51 // added to a float64, it leaves no bits behind the point
	exponent := max(int(top>>mantissa), 1) - bias
	unit := math.Float64frombits(uint64(1023+mantissa-exponent) << 52)
	for i, v := range x {
		n := int32(float64(float64(float64(v)*unit)+roundInt) - roundInt)
		out[i] = n
		total += n
	}
	return float32(math.Float64frombits(uint64(1023-mantissa+exponent) << 52)), total
}
