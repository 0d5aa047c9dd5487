package windows

import "slices"

// The eviction policies that every program has.
const (
	// PriorityLRU evicts the lowest priority first, among equals the least recently used,
	// among these the deepest in its prefix.
	PriorityLRU = "priority_lru"
	// Forecast predicts, among pages of the lowest priority, when each will be used again, and
	// evicts the one that is worth least to keep.
	Forecast = "forecast"
)

// policies are in the order in which they were added.
var policies = []string{PriorityLRU, Forecast}

// EvictionPolicies lists the policies that Config.EvictionPolicy may name: those above, and those
// that packages of the program have registered with evict.Register, as pool/evict/published does.
func EvictionPolicies() []string { return slices.Clone(policies) }

// AddEvictionPolicy lets Config.EvictionPolicy name a policy. It is for evict.Register.
func AddEvictionPolicy(name string) { policies = append(policies, name) }
