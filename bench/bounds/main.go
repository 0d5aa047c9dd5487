// Command bounds runs the benchmarks whose results have bounds and prints them as a table.
//
//	go run ./bench/bounds          # print the table, some ten minutes and 8 GiB
//	go run ./bench/bounds -write   # put it into README.md and bench/README.md as well
//
// It runs in the root of the module. Each row is the median of several runs of one benchmark of
// package bench, in its large form. The status is 1 if a bound does not hold. Times need a machine
// that does nothing else; quotients, bytes and allocations do not.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	what      string
	benchmark string  // of package bench, without Benchmark
	metric    string  // as go test prints it
	scale     float64 // of the metric, to the unit
	unit      string
	bound     float64 // in the unit; noBound: it is only reported
	short     bool    // also a row of README.md
}

const noBound = -1

// rows are the bounds of the project, and what hosts ask for first.
var rows = []row{
	{"match of a prompt of 100,000 tokens, 1M blocks resident, three pools, through the actors",
		"Match/100k/warm", "engine-ns", 1e-6, "ms", noBound, true},
	{"admission and release of 1,000 matched blocks, three pools",
		"AdmitRelease/blocks=1000", "engine-ns", 1e-3, "µs", noBound, true},
	{"the same, beside the cores without actors",
		"AdmitRelease/blocks=1000", "x/floor", 1, "×", 1.3, false},
	{"the same with 6,000 blocks",
		"AdmitRelease/blocks=6000", "x/floor", 1, "×", 1.3, false},
	{"the same, allocations",
		"AdmitRelease/blocks=1000", "allocs/op", 1, "", 0, true},
	{"a decode step of 512 sequences, three pools, a sequence",
		"Append", "ns/sequence", 1e-3, "µs", noBound, true},
	{"the same, allocations a step", "Append", "allocs/op", 1, "", 0, false},
	{"eviction of a page of 10M, `priority_lru`",
		"PolicyEvict/take/prompt=256/10000000", "lru-ns/page", 1e-3, "µs", 1, true},
	{"the same, pages scattered",
		"PolicyEvict/scattered/prompt=256/10000000", "lru-ns/page", 1e-3, "µs", 1, false},
	{"eviction of a page of 10M, `forecast`",
		"PolicyEvict/take/prompt=256/10000000", "ns/page", 1e-3, "µs", 1, true},
	{"the same, pages scattered",
		"PolicyEvict/scattered/prompt=256/10000000", "ns/page", 1e-3, "µs", 1, false},
	{"metadata of a block of 16 tokens, tokens included, `priority_lru`",
		"Memory/tokens=512", "bytes/block", 1, "B", 250, true},
	{"the same, `forecast`", "Memory/forecast/tokens=512", "bytes/block", 1, "B", 450, false},
}

func main() {
	write := flag.Bool("write", false, "put the tables into README.md and bench/README.md")
	runs := flag.Int("runs", 3, "`runs` of each benchmark, whose median counts")
	flag.Parse()
	log.SetFlags(0)
	values := map[string][]float64{}
	for _, name := range benchmarks() {
		fmt.Fprintln(os.Stderr, "running", name)
		measure(name, *runs, values)
	}
	all, short, held := table(values)
	fmt.Print(all)
	if *write {
		for file, made := range map[string]string{"bench/README.md": all, "README.md": short} {
			old, err := os.ReadFile(file)
			if err != nil {
				log.Fatal(err)
			}
			now, err := replace(string(old), made)
			if err != nil {
				log.Fatalf("%s: %v", file, err)
			}
			if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
	if !held {
		log.Fatal("a bound does not hold")
	}
}

// benchmarks are those of the rows, each once, in order.
func benchmarks() (names []string) {
	for _, r := range rows {
		if !slices.Contains(names, r.benchmark) {
			names = append(names, r.benchmark)
		}
	}
	return names
}

var pair = regexp.MustCompile(`([0-9.e+-]+) (\S+)`)

// measure runs a benchmark and adds what it prints to values, by benchmark and metric.
func measure(name string, runs int, values map[string][]float64) {
	pattern := "^Benchmark" + strings.ReplaceAll(name, "/", "$/^") + "$"
	test := exec.Command("go", "test", "-run=NONE", "-timeout=1h", "-benchtime=300ms",
		"-count="+strconv.Itoa(runs), "-bench="+pattern, "./bench")
	test.Env = append(os.Environ(), "KVACTOR_BENCH=large")
	test.Stderr = os.Stderr
	out, err := test.Output()
	if err != nil {
		log.Fatalf("%s: %v\n%s", name, err, out)
	}
	for line := range bytes.Lines(out) {
		if !bytes.HasPrefix(line, []byte("Benchmark")) {
			continue
		}
		for _, m := range pair.FindAllSubmatch(line, -1) {
			if v, err := strconv.ParseFloat(string(m[1]), 64); err == nil {
				key := name + " " + string(m[2])
				values[key] = append(values[key], v)
			}
		}
	}
}

// table makes the tables of bench/README.md and README.md. It tells whether all bounds held.
func table(values map[string][]float64) (all, short string, held bool) {
	held = true
	all = "| what | bound | measured |\n| --- | --: | --: |\n"
	short = "| what | measured |\n| --- | --: |\n"
	for _, r := range rows {
		got := slices.Sorted(slices.Values(values[r.benchmark+" "+r.metric]))
		if len(got) == 0 {
			log.Fatalf("%s did not print %s", r.benchmark, r.metric)
		}
		v := got[len(got)/2] * r.scale
		measured, bound := quantity(v, r.unit), ""
		if r.bound != noBound {
			bound = "≤ " + quantity(r.bound, r.unit)
			if v > r.bound {
				held, measured = false, measured+", above the bound"
			}
		}
		all += fmt.Sprintf("| %s | %s | %s |\n", r.what, bound, measured)
		if r.short {
			short += fmt.Sprintf("| %s | %s |\n", r.what, measured)
		}
	}
	source := fmt.Sprintf("\n`go run ./bench/bounds -write`, %d CPUs, %s, %s.\n", runtime.NumCPU(),
		runtime.Version(), time.Now().Format(time.DateOnly))
	return all + source, short + source, held
}

// quantity prints a number with three digits and its unit.
func quantity(v float64, unit string) string {
	return strings.TrimSpace(strconv.FormatFloat(v, 'g', 3, 64) + " " + unit)
}

// The marks that a table stands between.
const (
	begin = "<!-- bounds: made by go run ./bench/bounds -write -->\n"
	end   = "<!-- end of bounds -->"
)

// replace puts a table between the marks of a text.
func replace(text, table string) (string, error) {
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", errors.New("there are no marks for the table")
	}
	return before + begin + "\n" + table + "\n" + end + after, nil
}
