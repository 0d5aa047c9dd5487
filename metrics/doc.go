// Package metrics exports what an engine does to Prometheus. The engine doesn't know this package:
// a Collector asks it for its counters when Prometheus scrapes, and hears of each call through the
// option actors.WithCallObserver.
//
//	c := metrics.New(metrics.Options{Model: "llama"})
//	engine, err := kvactor.Open(config, actors.WithCallObserver(c.Observe))
//	c.Attach(engine, engine.Pools())
//	prometheus.MustRegister(c)
//
// # Names
//
// Names begin with kvactor_ and end with the unit. Metrics have the labels model_name and engine;
// those that count pages or bytes also have the label pool. docs/observability.md lists them;
// docs/grafana/kvactor.json is a board.
//
// AliasVLLM and AliasTensorRTLLM export the same numbers also under the names, types and labels of
// these engines, for gateways and boards that look for them. If the engine doesn't know a metric of
// theirs, it is absent: testdata lists all of them, and docs/observability.md gives the reasons.
//
// # Costs
//
// A scrape is one request to the engine, which takes 4.5 µs however many pages it has, and the
// process makes the text in 1.5 ms. An observed call costs 0.3 µs and allocates nothing; every 64th
// call adds the collected times to the histograms, which takes 20 µs.
package metrics
