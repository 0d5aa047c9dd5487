package main

import (
	"fmt"

	"github.com/pkg/profile"
	"github.com/spf13/cobra"
)

// profiling is what the profile flags ask for.
type profiling struct {
	kind      string
	directory string
}

// flags adds the flags to a command and those below it.
func (p *profiling) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&p.kind, "profile", "", "record a profile: `cpu`, mem, mutex or trace")
	c.PersistentFlags().StringVar(&p.directory, "profile-dir", ".", "directory that the profile is written to")
}

// around runs a command under the profile that was asked for.
func (p *profiling) around(c *cobra.Command, run func() error) error {
	if p.kind == "" {
		return run()
	}
	kinds := map[string]func(*profile.Profile){
		"cpu": profile.CPUProfile, "mem": profile.MemProfile,
		"mutex": profile.MutexProfile, "trace": profile.TraceProfile,
	}
	names := map[string]string{"cpu": "cpu.pprof", "mem": "mem.pprof", "mutex": "mutex.pprof", "trace": "trace.out"}
	kind := kinds[p.kind]
	if kind == nil {
		return statusError{fmt.Errorf("--profile %s is none of cpu, mem, mutex, trace", p.kind), statusUsage}
	}
	recording := profile.Start(kind, profile.ProfilePath(p.directory), profile.Quiet, profile.NoShutdownHook)
	defer func() {
		recording.Stop()
		fmt.Fprintf(c.ErrOrStderr(), "the profile is in %s/%s\n", p.directory, names[p.kind])
	}()
	return run()
}
