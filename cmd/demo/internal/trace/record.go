package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// absent marks a number that a line does not have.
const absent = math.MinInt64

// MaxLength is the longest prompt or answer in tokens that a trace may state.
// Beyond it a line is a mistake, and a run of identities could fill memory.
const MaxLength = 1 << 24

// record is one line as it is written.
type record struct {
	Timestamp    float64   `json:"timestamp"`
	InputLength  int64     `json:"input_length"`
	OutputLength int64     `json:"output_length"`
	IDs          []int64   `json:"hash_ids"`
	Runs         [][]int64 `json:"hash_runs"`
}

// decode reads one line over the record and checks its numbers one by one.
func (r *record) decode(line []byte) error {
	r.Timestamp, r.InputLength, r.OutputLength = math.NaN(), absent, absent
	r.IDs, r.Runs = nil, nil
	if err := json.Unmarshal(line, r); err != nil {
		return notJSON(err)
	}
	switch {
	case math.IsNaN(r.Timestamp):
		return errors.New("timestamp is missing")
	case r.Timestamp < 0 || r.Timestamp > maxTimestamp:
		return fmt.Errorf("timestamp %v is not within 0 and %v ms", r.Timestamp, int64(maxTimestamp))
	case (r.IDs == nil) == (r.Runs == nil):
		return errors.New("a line needs either hash_ids or hash_runs")
	case slices.ContainsFunc(r.Runs, func(run []int64) bool { return len(run) != 2 }):
		return errors.New("hash_runs is no list of pairs")
	}
	if err := checkLength("input_length", r.InputLength, 0); err != nil {
		return err
	}
	return checkLength("output_length", r.OutputLength, 0)
}

// maxTimestamp is 30 years in milliseconds, far below what a duration holds.
const maxTimestamp = 30 * 366 * 24 * 3600 * 1000

func checkLength(name string, n, least int64) error {
	switch {
	case n == absent:
		return fmt.Errorf("%s is missing", name)
	case n < least:
		return fmt.Errorf("%s %d is below %d", name, n, least)
	case n > MaxLength:
		return fmt.Errorf("%s %d is above %d", name, n, MaxLength)
	}
	return nil
}

func notJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("no JSON: %v", err)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return fmt.Errorf("a %s does not belong in %s", kind.Value, kind.Field)
	}
	if errors.As(err, &kind) {
		return fmt.Errorf("the line is a JSON %s, not an object", kind.Value)
	}
	return err
}

// count is how many identities the line lists, before runs are written out.
func (r *record) count() (int64, error) {
	if r.IDs != nil {
		return int64(len(r.IDs)), nil
	}
	total := int64(0)
	for _, run := range r.Runs {
		start, n := run[0], run[1]
		if n < 1 || start > math.MaxInt64-n {
			return 0, fmt.Errorf("run [%d,%d] has no such length", start, n)
		}
		if n > MaxLength-total {
			return 0, fmt.Errorf("hash_runs lists more than %d blocks", MaxLength)
		}
		total += n
	}
	return total, nil
}
