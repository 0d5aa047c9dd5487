// Package report prints what the demo's commands measured: tables, numbers for
// people, a bar of progress on terminals and a line every few seconds
// elsewhere, and a small picture of a quantity over time.
package report
