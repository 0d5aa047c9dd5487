// Package charts draws the charts of the demo's reports: lines over time or capacity, and
// bars. A [Chart] is data alone. It is drawn three ways:
//
//   - [Chart.SVG], to be put into a page. Colours are CSS variables, named by [Color.Variable],
//     so that the page decides on light and dark; text stays text.
//   - [Chart.PNG] and [Sheet], for those without a browser, with a light background.
//   - [Chart.Terminal], in characters.
//
// Series differ in dashes and marks as well as in colour.
package charts
