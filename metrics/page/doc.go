// Package page shows an engine to people: one page without outside resources, the
// numbers behind it in JSON, and metrics and events if the host has them.
//
//	/         the page: pages of each pool by state, hit rate and copies over time
//	/stats    its numbers, in JSON
//	/live     the same ten times a second, as server-sent events
//	/healthz  200 if the engine answers, else 503
//	/metrics  Options.Metrics
//	/events   Options.Events
//
// Nothing here has tokens, salts or names of blocks. The cost is one Stats request for
// each 100 ms while somebody looks, however many do, and none otherwise; it does not
// depend on the number of pages.
package page
