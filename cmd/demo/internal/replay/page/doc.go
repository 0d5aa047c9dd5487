// Package page makes the report of replays: one page without outside resources, with plots,
// a table of the replays, and all numbers as JSON in the page itself.
//
// [Gather] collects the [Data] of a report, [Data.Charts] are its plots, and [Data.Write]
// writes the page. The page has no program in it: plots are SVG whose colours are CSS
// variables, so that one drawing serves light, dark and print.
package page
