// Package differential compares the engine, with all its actors on the
// simulated device, with the naive oracle of the semantics: random operations,
// several pools, both tiers, virtual time, answer by answer.
package differential
