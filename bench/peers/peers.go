package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// measurement is what a driver prints.
type measurement struct {
	Version  string  `json:"version"`
	Requests int     `json:"requests"`
	Blocks   int     `json:"blocks"`
	Hits     int     `json:"hits"`
	Seconds  float64 `json:"seconds"`
}

// peer is one cache manager of the table.
type peer struct {
	Name string
	// prepare installs what it needs under a folder and returns the command that
	// measures it: FILE stands for the file of prompts, REPLAY for the arguments of this
	// engine's own command, which reads the trace itself.
	prepare func(ctx context.Context, s *setup) ([]string, error)
}

// setup is where things are.
type setup struct {
	here   string // this folder
	cache  string // what was installed and built
	python string
}

// peers are those of the table, this engine first: the ratios are against it.
var peers = []peer{
	{"kvactor", func(ctx context.Context, s *setup) ([]string, error) { return s.engine(ctx) }},
	{"kvbm", func(ctx context.Context, s *setup) ([]string, error) { return s.kvbm(ctx, "lru") }},
	{"kvbm-lineage", func(ctx context.Context, s *setup) ([]string,
		error) {
		return s.kvbm(ctx, "lineage")
	}},
	{"sglang", func(ctx context.Context, s *setup) ([]string,
		error) {
		return s.wheels(ctx, "sglang")
	}},
	{"vllm", func(ctx context.Context, s *setup) ([]string, error) { return s.wheels(ctx, "vllm") }},
}

// engine builds this engine's command.
func (s *setup) engine(ctx context.Context) ([]string, error) {
	path := filepath.Join(s.cache, "demo")
	err := run(ctx, filepath.Join(s.here, "..", ".."), nil, "go", "build", "-o", path, "./cmd/demo")
	return []string{path, "REPLAY"}, err
}

// kvbm builds the Rust driver.
func (s *setup) kvbm(ctx context.Context, backend string) ([]string, error) {
	target := filepath.Join(s.cache, "kvbm")
	err := run(ctx, filepath.Join(s.here, "kvbm"), []string{"CARGO_TARGET_DIR=" + target}, "cargo",
		"build", "--release", "--locked", "--quiet")
	return []string{filepath.Join(target, "release", "kvbm-driver"), "FILE", backend}, err
}

// wheels installs a Python peer into an environment of its own, with the packages that
// its driver imports and no others: all that a server needs would be some gigabytes.
func (s *setup) wheels(ctx context.Context, name string) ([]string, error) {
	folder := filepath.Join(s.cache, name)
	python := filepath.Join(folder, "bin", "python")
	requirements := filepath.Join(s.here, name, "requirements.txt")
	done := filepath.Join(folder, "installed")
	want, err := os.ReadFile(requirements)
	if err != nil {
		return nil, err
	}
	if have, err := os.ReadFile(done); err != nil || string(have) != string(want) {
		if err := run(ctx, s.here, nil, s.python, "-m", "venv", "--clear", folder); err != nil {
			return nil, err
		}
		if err := run(ctx, s.here, nil, python, "-m", "pip", "install", "--quiet", "--no-deps", "-r",
			requirements); err != nil {
			return nil, err
		}
		if err := os.WriteFile(done, want, 0o644); err != nil {
			return nil, err
		}
	}
	driver := filepath.Join(s.here, name, "driver.py")
	if err := run(ctx, s.here, nil, python, driver); err != nil {
		return nil, err
	}
	return []string{python, driver, "FILE"}, nil
}

// run runs a command to its end. Its error has the last line of what the command said.
func run(ctx context.Context, folder string, env []string, name string, args ...string) error {
	_, err := output(ctx, folder, env, name, args...)
	return err
}

// output is run with what the command wrote to its standard output.
func output(
	ctx context.Context, folder string, env []string, name string, args ...string,
) ([]byte, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	if err == nil {
		return out, nil
	}
	if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); lines[len(lines)-1] != "" {
		err = fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
}

// measure runs a peer once on a row. Like the drivers of the peers this engine's own command
// leaves out the kernels, which would empty the processor's caches between the calls.
func (s *setup) measure(
	ctx context.Context, priority, command []string, r row, folder, file string,
) (m measurement, err error) {
	args, replays := append([]string{}, priority...), false
	for _, arg := range command {
		switch arg {
		case "FILE":
			args = append(args, file)
		case "REPLAY":
			replays = true
			args = append(args, "replay", filepath.Join(folder, r.Trace), "--atomic", "--json",
				"--kernels=false", "--host-pages", "0",
				"--pages", fmt.Sprint(r.Pages), "--tokens-per-block", fmt.Sprint(r.Size), "--limit",
				fmt.Sprint(r.Limit))
		default:
			args = append(args, arg)
		}
	}
	out, err := output(ctx, s.here, nil, args[0], args[1:]...)
	if err != nil {
		return m, err
	}
	if !replays {
		return m, json.Unmarshal(out, &m)
	}
	var own struct {
		Requests int      `json:"requests"`
		Blocks   int      `json:"blocks"`
		Hits     int      `json:"hit_blocks"`
		Seconds  float64  `json:"engine_seconds"`
		Problems []string `json:"problems"` // such as an invariant that does not hold
	}
	if err := json.Unmarshal(out, &own); err != nil {
		return m, err
	}
	if len(own.Problems) > 0 {
		return m, errors.New(own.Problems[0])
	}
	return measurement{Requests: own.Requests, Blocks: own.Blocks, Hits: own.Hits,
		Seconds: own.Seconds}, nil
}
