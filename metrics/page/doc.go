// Package page shows an engine to people: one page without outside resources, its numbers in JSON,
// and metrics and events if the host has them.
//
//	/         the page: pages by state, priority and age, the prefix tree, transfers on the
//	          streams; hit rate, memory, latency and copies over time; prompts looked up
//	/stats    its numbers, in JSON
//	/live     the same ten times a second, as server-sent events
//	/lookup   POST {"prompt": "…"}: what of a prompt is cached, and why no more
//	/healthz  200 if the engine answers, else 503
//	/metrics  Options.Metrics
//	/events   Options.Events
//	/debug/pprof/  Options.Pprof
//
// # Security
//
// Nothing here has tokens, salts or names of blocks. A lookup tells whether a prompt without salt
// is cached, and so whether a user has sent it: Options.NoLookup turns lookups off. Serve listens
// on the loopback interface unless the address names another, and there answers only requests for
// that interface. Readers, lookups, sizes and times have limits.
//
// # Costs
//
// While the page has readers, however many, it sends the engine one Stats and one Overview request
// every 100 ms; otherwise none. The overview has 600 pages of each pool and tier, and once a second
// 300 nodes of the tree. At a million pages in 20,000 branches an answer takes 0.15 ms, and one
// with the tree 6 ms, once a second (BenchmarkAnswer). A Recorder costs 0.1 µs for each call.
package page
