// Package plan computes what a model's cache takes and what fits into given
// memory: the pools and their pages, how memory is split, how many sequences of
// each length fit and which pool allows no more, what a number of sequences needs,
// and from which length on bringing a prefix back from host memory is faster than
// computing it again.
//
// Make takes the geometry and the memory and returns a Plan, a plain value: the
// command prints it as tables, or as JSON.
package plan
