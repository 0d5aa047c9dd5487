package main

import (
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
)

// profiles are the links of the ranks of a group, in turn: a group is to be right with
// devices of different speeds.
var profiles = []string{"h100-pcie5", "a100-pcie4", "gh200-c2c"}

// simulate makes a device, or a group of devices if there are ranks, each of which has a
// hazard checker of its own.
func simulate(c sim.Config, ranks int, hazard func(string)) (simgroup.Simulated, error) {
	if ranks == 0 {
		return sim.New(c)
	}
	return simgroup.New(simgroup.Config{
		Config: c, Ranks: ranks, Profiles: profiles,
		Wrap: func(_ int, d *sim.Device) gpu.Device { return check.Wrap(d, check.Options{OnProblem: hazard}) },
	})
}

// inspectors look at the pages of each rank.
func inspectors(d simgroup.Simulated) (look []host.Inspector, err error) {
	for _, s := range simgroup.Sims(d) {
		stream, err := s.NewStream("inspect")
		if err != nil {
			return nil, err
		}
		look = append(look, host.Inspector{Launcher: s, Stream: stream, Drain: s.Drain})
	}
	return look, nil
}
