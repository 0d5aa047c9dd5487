package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// absent marks a number that a line does not have.
const absent = math.MinInt64

// MaxLength is the longest prompt or answer in tokens that a trace may state.
// Beyond it a line is a mistake, and a run of identities could fill memory.
const MaxLength = 1 << 24

// record is one line as it is written. The slices are reused from line to line.
type record struct {
	Timestamp    float64  `json:"timestamp"`
	InputLength  int64    `json:"input_length"`
	OutputLength int64    `json:"output_length"`
	IDs          identity `json:"hash_ids"`
	Runs         identity `json:"hash_runs"`
}

// identity is a list of integers, or of pairs of them written one after the
// other, that keeps its memory between lines.
type identity struct {
	present bool
	numbers []int64
}

// UnmarshalJSON appends the integers of a JSON array, nested or not, to the
// emptied list. The shape is checked later, by the number of integers.
func (l *identity) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if text[0] != '[' {
		return errors.New("identities are no list")
	}
	l.present = true
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(text) && isNumber(text[end]) {
				end++
			}
			n, err := strconv.ParseInt(string(text[i:end]), 10, 64)
			if err != nil {
				return fmt.Errorf("identity %s is no whole number", text[i:end])
			}
			l.numbers = append(l.numbers, n)
			i = end
		case c == '[' || c == ']' || c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
			i++
		default:
			return fmt.Errorf("identities hold %q", text[i:min(len(text), i+8)])
		}
	}
	return nil
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// decode reads one line over the record and checks its numbers one by one.
func (r *record) decode(line []byte) error {
	r.Timestamp, r.InputLength, r.OutputLength = math.NaN(), absent, absent
	r.IDs = identity{numbers: r.IDs.numbers[:0]}
	r.Runs = identity{numbers: r.Runs.numbers[:0]}
	if err := json.Unmarshal(line, r); err != nil {
		return notJSON(err)
	}
	switch {
	case math.IsNaN(r.Timestamp):
		return errors.New("timestamp is missing")
	case r.Timestamp < 0 || r.Timestamp > maxTimestamp:
		return fmt.Errorf("timestamp %v is not within 0 and %v ms", r.Timestamp, int64(maxTimestamp))
	case r.IDs.present == r.Runs.present:
		return errors.New("a line needs either hash_ids or hash_runs")
	case len(r.Runs.numbers)%2 != 0:
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
		return fmt.Errorf("%s is a %s", kind.Field, kind.Value)
	}
	if errors.As(err, &kind) {
		return fmt.Errorf("the line is a JSON %s, not an object", kind.Value)
	}
	return err
}

// count is how many identities the line lists, before runs are written out.
func (r *record) count() (int64, error) {
	if r.IDs.present {
		return int64(len(r.IDs.numbers)), nil
	}
	total := int64(0)
	for i := 0; i < len(r.Runs.numbers); i += 2 {
		start, n := r.Runs.numbers[i], r.Runs.numbers[i+1]
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
