package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Profile is the timing of a device: its link to the host, its memory, its
// processors. Rates are decimal GB/s, which is bytes per nanosecond.
type Profile struct {
	Name string `json:"name"`
	// Onboard and Offload are the two directions of the link.
	Onboard Lane `json:"onboard"`
	Offload Lane `json:"offload"`
	// BothGBps is what both directions reach together; each direction gets at least half of it.
	BothGBps float64 `json:"both_gbps"`
	// CallNanos is the processor time of a submission, DescriptorNanos of each
	// of its descriptors: submissions start one behind the other on the host.
	CallNanos       float64 `json:"call_ns"`
	DescriptorNanos float64 `json:"descriptor_ns"`
	// SetupNanos is what an engine takes before the first byte of an operation.
	SetupNanos float64 `json:"setup_ns"`
	// HBMGBps is what device memory reaches in practice, reads and writes added
	// up: 0.8 of the datasheet. A local copy reads and writes each byte.
	HBMGBps float64 `json:"hbm_gbps"`
	// DenseTFLOPS is the datasheet's bf16 rate without sparsity. The simulation
	// does not use it; it is here for estimates of prefill time.
	DenseTFLOPS float64 `json:"dense_tflops"`
}

// Lane is one direction of the link. A descriptor of less than SmallBelow bytes
// takes Small, another takes Large; together they never beat GBps.
// SmallBelow 0 means one regime for all sizes.
type Lane struct {
	GBps       float64 `json:"gbps"`
	SmallBelow int64   `json:"small_below"`
	Small      Regime  `json:"small"`
	Large      Regime  `json:"large"`
}

// Regime is the cost of a descriptor: Nanos + bytes/GBps.
// Nanos decides for small descriptors, GBps for large ones.
type Regime struct {
	Nanos float64 `json:"ns"`
	GBps  float64 `json:"gbps"`
}

// smallBelow is the size at which host-to-device descriptors leave the slow
// regime, published for an H100: 28 KiB.
const smallBelow = 28 << 10

// profiles are the devices known by name. Solid: the link of h100-pcie5 and
// gh200-c2c, memory and compute of all (datasheets). The measured ones are of gpu/cuda on a
// device (docs/gpu.md). The rest are estimates; a profile that was measured elsewhere can be
// read with ReadProfile.
var profiles = []Profile{
	pcie("a100-pcie4", link{one: 25, both: 40, small: Regime{600, 6}, large: Regime{200, 26}},
		chip{2040, 312}),
	pcie("h100-pcie5", link{one: 52, both: 83, small: Regime{570, 8.2}, large: Regime{170, 55}},
		chip{3350, 989}),
	pcie("h200-pcie5", link{one: 52, both: 83, small: Regime{570, 8.2}, large: Regime{170, 55}},
		chip{4800, 989}),
	pcie("b200-pcie5", link{one: 45, both: 75, small: Regime{570, 8.2}, large: Regime{170, 46}},
		chip{7700, 2250}),
	coherent("gh200-c2c"),
	{
		Name: "h100-measured",
		Onboard: Lane{GBps: 54.9, SmallBelow: smallBelow, Small: Regime{110, 58.1},
			Large: Regime{477, 67.9}},
		Offload: Lane{GBps: 54.9, SmallBelow: smallBelow, Small: Regime{95.4, 58.3},
			Large: Regime{453, 69.8}},
		BothGBps: 94.6, CallNanos: 8550, DescriptorNanos: 621, SetupNanos: 2000, HBMGBps: 2675,
		DenseTFLOPS: 989,
	},
	{
		Name: "h200-measured",
		Onboard: Lane{GBps: 55.1, SmallBelow: smallBelow, Small: Regime{162.5, 75.9},
			Large: Regime{215.6, 55.1}},
		Offload: Lane{GBps: 55.1, SmallBelow: smallBelow, Small: Regime{65.9, 55.2},
			Large: Regime{174.8, 55.1}},
		BothGBps: 100.9, CallNanos: 7160, DescriptorNanos: 530.6, SetupNanos: 2000, HBMGBps: 3594,
		DenseTFLOPS: 989,
	},
}

// link is the host link of a device with copy engines: one is the rate of a direction
// alone, both that of the two together, in GB/s; small and large are the regimes of
// descriptors.
type link struct {
	one, both    float64
	small, large Regime
}

// chip is the device behind the link, by its datasheet: GB/s and dense bf16 TFLOPS.
type chip struct{ hbmGBps, tflops float64 }

// pcie makes the profile of a device that copy engines feed. Only onboarding
// has the slow regime; what offloading does with small pieces is not published.
func pcie(name string, l link, c chip) Profile {
	return Profile{
		Name:     name,
		Onboard:  Lane{GBps: l.one, SmallBelow: smallBelow, Small: l.small, Large: l.large},
		Offload:  Lane{GBps: l.one, Large: l.large},
		BothGBps: l.both,
		// 5.5 µs a call and 75 ns a descriptor on the processor, the same for all devices.
		CallNanos: 5500, DescriptorNanos: 75, SetupNanos: 2000,
		HBMGBps: 0.8 * c.hbmGBps, DenseTFLOPS: c.tflops,
	}
}

// coherent makes the profile of a device whose host memory hangs on a coherent
// link, where copies are kernels: 12 blocks onboard, 8 offload, 43 GB/s each,
// up to the rate of the link.
func coherent(name string) Profile {
	// GB/s of one thread block.
	const perBlock = 43
	return Profile{
		Name:      name,
		Onboard:   Lane{GBps: 351, Large: Regime{20, 12 * perBlock}},
		Offload:   Lane{GBps: 8 * perBlock, Large: Regime{20, 8 * perBlock}},
		BothGBps:  500,
		CallNanos: 5500, DescriptorNanos: 75, SetupNanos: 3000,
		HBMGBps: 0.8 * 4000, DenseTFLOPS: 989,
	}
}

// DefaultProfile is the profile of a Config that names none.
const DefaultProfile = "h200-pcie5"

// Profiles are the names of the profiles that come with the package.
func Profiles() []string {
	names := make([]string, len(profiles))
	for i := range profiles {
		names[i] = profiles[i].Name
	}
	return names
}

// NamedProfile returns a profile that comes with the package.
// The error lists the names that there are. The profile is a copy, free to be changed.
func NamedProfile(name string) (Profile, error) {
	i := slices.IndexFunc(profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, fmt.Errorf("sim: no profile %q (there are %v)", name, Profiles())
	}
	return profiles[i], nil
}

// ReadProfile reads a profile as JSON and checks it. Unknown names are refused.
func ReadProfile(r io.Reader) (Profile, error) {
	var p Profile
	dec := json.NewDecoder(r)
	// A misspelt name would leave its value at 0, and a cost of 0 is valid.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("sim: profile: %w", err)
	}
	return p, p.Validate()
}

// Write writes the profile as JSON, as ReadProfile reads it.
func (p Profile) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(p)
}

// Validate reports all that is wrong with a profile.
// Rates are divisors in the timing model, so each that is in use must be above 0.
func (p Profile) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("sim: profile: "+format, args...))
	}
	if p.Name == "" {
		wrong("it has no name")
	}
	rates := func(field string, l Lane) {
		if l.GBps <= 0 || l.Large.GBps <= 0 || l.SmallBelow > 0 && l.Small.GBps <= 0 {
			wrong("%s: every gbps in use must be above 0", field)
		}
		if l.Small.Nanos < 0 || l.Large.Nanos < 0 || l.SmallBelow < 0 {
			wrong("%s: ns and small_below must not be below 0", field)
		}
	}
	rates("onboard", p.Onboard)
	rates("offload", p.Offload)
	if p.BothGBps <= 0 || p.HBMGBps <= 0 {
		wrong("both_gbps %v and hbm_gbps %v must be above 0", p.BothGBps, p.HBMGBps)
	}
	if p.CallNanos < 0 || p.DescriptorNanos < 0 || p.SetupNanos < 0 || p.DenseTFLOPS < 0 {
		wrong("call_ns, descriptor_ns, setup_ns and dense_tflops must not be below 0")
	}
	return errors.Join(errs...)
}
